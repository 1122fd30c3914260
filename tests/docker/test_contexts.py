from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.docker import DockerProvider
from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.contexts import resolve
from sandbox_console.errors import BackendUnreachable, ConfigError
from sandbox_console.model.event import HealthChanged
from sandbox_console.model.sandbox import HealthState


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def settings(tmp_path, **options):
    return BackendSettings(state_dir=tmp_path, options=options)


def context(name, host):
    subprocess.run(["docker", "context", "create", name, "--docker", f"host={host}"], check=True, capture_output=True)


def test_importing_the_provider_imports_no_sdk():
    script = (
        "import sys; from sandbox_console.backends.docker import DockerProvider as P;"
        "from sandbox_console.backends.base import BackendSettings as S; from pathlib import Path;"
        "P.backends(S(Path('/x'))); print([m for m in ('aiodocker', 'aiohttp', 'docker', 'yarl') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def test_one_backend_a_context(tmp_path):
    assert [b.host for b in DockerProvider.backends(settings(tmp_path))] == ["default"]
    made = DockerProvider.backends(settings(tmp_path, contexts=["a", "b"]))
    assert [(b.name, b.host) for b in made] == [("docker", "a"), ("docker", "b")]


def test_the_current_context_is_found_as_the_docker_cli_does(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "work"}))
    assert DockerProvider.backends(settings(tmp_path))[0].host == "work"
    monkeypatch.setenv("DOCKER_CONTEXT", "other")
    assert DockerProvider.backends(settings(tmp_path))[0].host == "other"
    monkeypatch.setenv("DOCKER_HOST", "unix:///x")
    assert DockerProvider.backends(settings(tmp_path))[0].host == "default"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context": ["a"]}, "no option 'context'"),
        ({"contexts": "a"}, "a list"),
        ({"contexts": []}, "a list"),
        ({"contexts": ["a", "a"]}, "twice"),
    ],
)
def test_wrong_options_are_named(tmp_path, options, words):
    with pytest.raises(ConfigError, match=words) as caught:
        DockerProvider.backends(settings(tmp_path, **options))
    assert caught.value.hint


async def first_health(backend):
    event = await anext(backend.watch())
    assert isinstance(event, HealthChanged)
    return event.health


async def down(name, state, *words):
    backend = DockerBackend(name)
    await backend.open()
    health = await backend.health()
    assert health.state is state
    for word in words:
        assert word in health.reason + health.hint
    with pytest.raises(BackendUnreachable):
        await backend.list()
    assert await first_health(backend) == health
    await backend.close()


async def test_why_an_engine_does_not_answer_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("sandbox_console.backends.docker.contexts.DEFAULT_SOCKET", str(tmp_path / "none"))
    await down("default", HealthState.UNAVAILABLE, "no socket at")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    await down("default", HealthState.UNREACHABLE, "no socket at", "start the engine")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/dead")
    await down("default", HealthState.UNREACHABLE, "connection refused")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    await down("default", HealthState.UNREACHABLE, "connection refused", str(port))


@requires("user")
async def test_no_permission_names_the_group(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(tmp_path / "held"))
        held.listen()
        (tmp_path / "held").chmod(0o600)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/held")
        for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
            folder.chmod(0o755)
        os.seteuid(65534)
        try:
            await down("default", HealthState.UNREACHABLE, "permission denied", "group docker")
        finally:
            os.seteuid(0)


@pytest.mark.parametrize("url", ["nonsense", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "ftp://h:1", "unix://"])
async def test_an_address_that_cannot_be_used_is_said(monkeypatch, url):
    monkeypatch.setenv("DOCKER_HOST", url)
    await down("default", HealthState.UNAVAILABLE, repr(url), "unix:///path")


async def test_a_path_too_long_for_a_socket_is_said(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///" + "x" * 200)
    await down("default", HealthState.UNREACHABLE, "too long")


async def test_an_unknown_or_damaged_context_is_said(tmp_path):
    await down("nowhere", HealthState.UNAVAILABLE, "'nowhere'", "docker context ls")
    context("broken", "unix:///x")
    for meta in tmp_path.glob("contexts/meta/*/meta.json"):
        meta.write_text("{")
    await down("broken", HealthState.UNAVAILABLE, "'broken'", "cannot be read")


def test_a_context_in_the_current_folder_is_not_taken(tmp_path, monkeypatch):
    context("evil", "tcp://127.0.0.1:1")
    (tmp_path / "contexts").rename(tmp_path / "here")
    (tmp_path / "work").mkdir()
    (tmp_path / "here").rename(tmp_path / "work" / "contexts")
    monkeypatch.chdir(tmp_path / "work")
    with pytest.raises(ConfigError, match="evil"):
        resolve("evil")


@requires("docker")
async def test_a_named_context_works(tmp_path, docker_engine):
    context("private", docker_engine.url)
    backend = DockerBackend("private")
    await backend.open()
    assert (await backend.health()).ok
    assert {row.ref.host for row in await backend.list()} <= {"private"}
    await backend.close()


def test_a_tls_context_is_verified_with_its_own_files(tmp_path):
    import ssl

    for name in ("key", "other"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-subj", "/CN=test", "-keyout", str(tmp_path / f"{name}.pem"), "-out", str(tmp_path / f"{name}-cert.pem")],
            check=True, capture_output=True,
        )  # fmt: skip
    files = f"ca={tmp_path}/other-cert.pem,cert={tmp_path}/key-cert.pem,key={tmp_path}/key.pem"
    subprocess.run(["docker", "context", "create", "tls", "--docker", f"host=tcp://127.0.0.1:2376,{files}"],
                   check=True, capture_output=True)  # fmt: skip
    endpoint = resolve("tls")
    assert endpoint.base_url == "https://127.0.0.1:2376"
    assert endpoint.tls.verify_mode is ssl.CERT_REQUIRED
    next(tmp_path.glob("contexts/tls/*/docker/key.pem")).unlink()
    with pytest.raises(ConfigError, match="incomplete"):
        resolve("tls")
