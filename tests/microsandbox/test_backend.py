from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tests.support.permits import permit

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.microsandbox import MicrosandboxProvider, kvm
from sandbox_console.backends.microsandbox.backend import MicrosandboxBackend
from sandbox_console.backends.microsandbox.translate import image
from sandbox_console.errors import ConfigError, NotFound, Unsupported
from sandbox_console.model.action import Exec
from sandbox_console.model.capability import Capability
from sandbox_console.model.event import HealthChanged, Listed
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import HealthState, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec

__all__ = ["permit"]

pytest.importorskip("microsandbox", reason="microsandbox has no wheel for this platform")

CANARY, VARIABLE = "canary-secret-4711", "canary-variable-0815"

# A create boots; without a working KVM the boot fails and leaves a stopped row, which is what is looked at here.
_CREATE = """
import asyncio, sys
from microsandbox import Image, MicrosandboxError, Sandbox, Secret
async def main():
    secret = Secret.env("TOKEN", value=sys.argv[2], allow=["example.com"])
    try:
        await Sandbox.create("left-over", image=Image.bind(sys.argv[1]), memory=256, cpus=1, env={"PLAIN": sys.argv[3]},
                             labels={"team": "x"}, secrets=[secret], detached=True)
    except MicrosandboxError as error:
        print(error)
    else:
        await (await Sandbox.get("left-over")).kill()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def used_home():
    """A home with one sandbox whose boot failed, made by the SDK itself (7-10 s, once)."""
    with tempfile.TemporaryDirectory(prefix="sc-msb-", dir="/tmp") as folder:
        root = Path(folder) / "root"
        (root / "bin").mkdir(parents=True)
        environment = {**os.environ, "MSB_HOME": f"{folder}/home"}
        subprocess.run(
            [sys.executable, "-c", _CREATE, str(root), CANARY, VARIABLE], env=environment, check=True, timeout=60
        )
        yield Path(folder) / "home"


@pytest.fixture
def backend(used_home, monkeypatch):
    monkeypatch.setenv("MSB_HOME", str(used_home))
    return MicrosandboxBackend()


@pytest.fixture
def empty(tmp_path, monkeypatch):
    monkeypatch.setenv("MSB_HOME", str(tmp_path / "home"))
    return MicrosandboxBackend()


def everything(sandbox):
    return repr(dataclasses.asdict(sandbox))


async def test_a_sandbox_is_shown_and_nothing_secret_of_it(backend, used_home):
    (row,) = await backend.list()
    assert (row.name, row.managed, row.maker) == ("left-over", False, "microsandbox")
    assert row.image.startswith("dir:/tmp/sc-msb-")
    assert row.labels == {"team": "x"}
    assert abs(row.created_at - time.time()) < 120
    facts = {fact.field: fact.value for fact in row.effective}
    assert (facts["memory_mib"], facts["cpus"], facts["env"], facts["secrets"]) == ("256", "1", "PLAIN", "TOKEN")
    assert await backend.inspect(row.ref) == row
    shown = everything(row)
    assert CANARY not in shown
    assert VARIABLE not in shown
    raw = b"".join(path.read_bytes() for path in (used_home / "db").iterdir())
    assert CANARY.encode() in raw  # it is there to be shown, and is not


async def test_a_boot_that_failed_is_told_in_words(backend):
    (row,) = await backend.list()
    if kvm.problem() is None:
        pytest.skip("KVM works here, so the boot did not fail")
    assert row.status is Status.FAILED
    assert "KVM" in row.detail or "kvm" in row.detail
    health = await backend.health()
    assert health.state is HealthState.UNAVAILABLE
    assert health.reason
    assert health.hint
    assert health.version == "0.7.11"


async def test_the_last_boot_decides_where_nothing_else_speaks_against(backend, monkeypatch):
    (row,) = await backend.list()
    if row.status is not Status.FAILED:
        pytest.skip("KVM works here, so the boot did not fail")
    monkeypatch.setattr(kvm, "problem", lambda: None)
    health = await backend.health()
    assert health.state is HealthState.UNAVAILABLE
    assert "the last boot failed" in health.reason


async def test_logs_are_read_without_a_machine(backend):
    (row,) = await backend.list()
    for follow in (False, True):
        async with asyncio.timeout(5):
            assert [batch async for batch in backend.logs(row.ref, LogQuery(follow=follow))] == []
    with pytest.raises(NotFound):
        [batch async for batch in backend.logs(SandboxRef("microsandbox", "local", "local:99"), LogQuery())]


async def test_health_and_the_list_come_first_and_again_when_something_changed(backend, used_home, permit, monkeypatch):
    monkeypatch.setattr("sandbox_console.backends.microsandbox.backend.LOOK_S", 0.05)
    events = []

    async def collect():
        async for event in backend.watch():
            events.append(event)  # noqa: PERF401 - read while it grows

    watching = asyncio.ensure_future(collect())
    async with asyncio.timeout(10):
        while len(events) < 2:
            await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)  # ten looks: looking is not a change
    assert [type(event) for event in events] == [HealthChanged, Listed]
    (row,) = events[1].sandboxes
    await backend.remove(await permit("remove"), row.ref, force=False)
    async with asyncio.timeout(10):
        while not (isinstance(events[-1], Listed) and events[-1].sandboxes == ()):
            await asyncio.sleep(0.02)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    with pytest.raises(NotFound):
        await backend.remove(await permit("remove"), row.ref, force=True)
    with pytest.raises(NotFound):
        await backend.inspect(row.ref)


async def test_a_home_that_was_never_used_is_not_made(empty, tmp_path):
    assert await empty.list() == []
    await empty.health()
    assert not (tmp_path / "home").exists()


def test_nothing_imports_the_sdk_until_there_is_something_to_list(tmp_path):
    script = (
        "import asyncio, sys; from pathlib import Path;"
        "from sandbox_console.backends.microsandbox import MicrosandboxProvider as P;"
        "from sandbox_console.backends.base import BackendSettings as S;"
        "b, = P.backends(S(Path('/x'))); asyncio.run(b.open()); b.capabilities(); asyncio.run(b.list());"
        "asyncio.run(b.health()); print('microsandbox' in sys.modules)"
    )
    environment = {**os.environ, "MSB_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert done.stdout == b"False\n"


async def test_the_rest_is_unsupported_in_a_users_words(empty, permit):
    ref = SandboxRef("microsandbox", "local", "local:1")
    spec = SandboxSpec(name="x", image="y")
    for call in (
        empty.create(await permit("create"), spec, (), print),
        empty.start(await permit("start"), ref, ()),
        empty.stop(await permit("stop"), ref, 1),
        empty.exec(await permit("exec"), Exec(ref, ("true",)), ()),
        anext(empty.stats(ref, 1)),
    ):
        with pytest.raises(Unsupported, match="not in this version") as caught:
            await call
        assert "msb" in caught.value.hint
    able = empty.capabilities()
    assert able.has(Capability.LOGS)
    assert not able.has(Capability.CREATE)
    assert able.reason(Capability.CREATE) == "not in this version"


def test_an_option_is_an_error():
    with pytest.raises(ConfigError, match="home"):
        MicrosandboxProvider.backends(BackendSettings(Path("/x"), {"home": "/y"}))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("alpine", "alpine"),
        ({"Oci": {"reference": "alpine:3"}}, "alpine:3"),
        ({"Bind": {"path": "/x", "follow_root_symlinks": False}}, "dir:/x"),
        ({"Oci": "alpine"}, "alpine"),
        (None, ""),
        ({"A": 1, "B": 2}, ""),
    ],
)
def test_an_image_is_named(value, shown):
    assert image(value) == shown


def test_why_kvm_does_not_work_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(kvm, "KVM", tmp_path / "kvm")
    assert "no /dev/kvm" in kvm.problem()[0]
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(kvm, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags : fpu svm sse\n")
    assert kvm.problem() is None
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags : fpu sse\n")
    assert "no virtualisation" in kvm.problem()[0]
    if os.geteuid() == 0:
        (tmp_path / "kvm").chmod(0o600)
        for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
            folder.chmod(0o755)
        os.seteuid(65534)
        try:
            reason, hint = kvm.problem()
        finally:
            os.seteuid(0)
        assert "permission denied" in reason
        assert "group kvm" in hint


def test_boot_failures_have_their_meaning():
    assert "cannot run a guest" in kvm.boot_failure(b"ERROR vstate: Received KVM_EXIT_INTERNAL_ERROR signal\n")
    assert "permission" in kvm.boot_failure(b"Error creating the Kvm object: Error(13)")
    assert kvm.boot_failure(b"--- sandbox stopped ---") == ""


def test_config_json_is_only_read_where_it_is_redacted():
    folder = Path("src/sandbox_console/backends/microsandbox")
    readers = [path.name for path in folder.glob("*.py") if "config_json" in path.read_text()]
    assert readers == ["translate.py"]
