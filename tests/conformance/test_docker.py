from __future__ import annotations

from pathlib import Path

import pytest
from tests.egress import image
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.backends.docker.gateways import Options
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import BackendConformance, Profile

pytestmark = requires("docker")
OUTSIDE = "conformance-outside"  # an engine of ours has no bridge of its own
SUBNET, BRIDGE = "172.29.77.0/24", "172.29.77.1"
NAMES = ("good.example.com", "bad.example.com")


def leftovers(engine, state) -> set[str]:
    """Containers, networks and volumes of the engine, its mounts and links of each, and gateways' folders."""
    folders = {str(path) for path in (state / "egress").glob("*") if path.suffix != ".pyz"}
    found = {f"{kind} {one}" for kind in ("container", "network", "volume") for one in names(engine, kind)}
    mounts = Path(f"/proc/{engine.pid}/mountinfo").read_text().splitlines()
    return found | folders | {line.split()[4] for line in mounts if "/containers/" in line or "/merged" in line}


def names(engine, kind: str) -> list[str]:
    return engine.docker(kind, "ls", "-q", *(["-a"] if kind == "container" else [])).split()


class TestDocker(BackendConformance):
    known_gaps = {  # noqa: RUF012 - a constant of the class
        "test_a_last_line_without_its_end_is_there": "Docker's json-file log driver ends every line, the last one too",
    }

    @pytest.fixture(scope="class", autouse=True)
    def gateways(self, docker_engine):
        """What gateways are made from, and where they are let in."""
        docker_engine.docker("import", "-c", 'CMD ["/bin/sh"]', "-", image.NAME, stdin=image.tree())
        docker_engine.docker("network", "create", "--subnet", SUBNET, "--gateway", BRIDGE, OUTSIDE)
        yield
        docker_engine.docker("network", "rm", OUTSIDE)

    @pytest.fixture
    def another(self, docker_engine, monkeypatch, tmp_path):
        monkeypatch.setenv("DOCKER_HOST", docker_engine.url)

        hosts = tmp_path / "hosts"
        hosts.write_text("".join(f"{BRIDGE} {name}\n" for name in NAMES))

        async def open_one():
            options = Options(egress_image=image.NAME, egress_network=OUTSIDE, egress_hosts=str(hosts))
            backend = DockerBackend("default", tmp_path / "state", options)
            await backend.open()
            return backend

        return open_one

    @pytest.fixture
    async def backend(self, another):
        backend = await another()
        yield backend
        await backend.close()

    @pytest.fixture
    def profile(self, another, docker_engine, tmp_path):
        return Profile(
            "docker",
            lambda name: SandboxSpec(name, image=IMAGE, command=("sleep", "1000")),
            another=another,
            scratch="/home/user",  # /tmp is in memory and has 64 MB
            host_command=("nsenter", f"--net=/proc/{docker_engine.pid}/ns/net"),
            disk=(docker_engine.data / "containers",),
            leftovers=lambda: leftovers(docker_engine, tmp_path / "state"),
            runtime="runc",
            outside=(*NAMES, BRIDGE),
        )
