from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

pytestmark = requires("docker")


def leftovers(engine) -> set[str]:
    """Containers, networks and volumes of the engine, and its mounts and links of each."""
    found = {f"{kind} {one}" for kind in ("container", "network", "volume") for one in names(engine, kind)}
    mounts = Path(f"/proc/{engine.pid}/mountinfo").read_text().splitlines()
    return found | {line.split()[4] for line in mounts if "/containers/" in line or "/merged" in line}


def names(engine, kind: str) -> list[str]:
    return engine.docker(kind, "ls", "-q", *(["-a"] if kind == "container" else [])).split()


class TestDocker(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_a_last_line_without_its_end_is_there": "Docker's json-file log driver ends every line, the last one too",
    }

    @pytest.fixture
    def another(self, docker_engine, monkeypatch):
        monkeypatch.setenv("DOCKER_HOST", docker_engine.url)

        async def open_one():
            backend = DockerBackend("default")
            await backend.open()
            return backend

        return open_one

    @pytest.fixture
    async def backend(self, another):
        backend = await another()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self, another, docker_engine):
        return Profile(
            "docker",
            lambda name: SandboxSpec(name, image=IMAGE, command=("sleep", "1000")),
            another=another,
            scratch="/home/user",  # /tmp is in memory and has 64 MB
            host_command=("nsenter", f"--net=/proc/{docker_engine.pid}/ns/net"),
            disk=(docker_engine.data / "containers",),
            leftovers=lambda: leftovers(docker_engine),
        )
