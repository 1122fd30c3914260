from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.egress import world
from tests.support.engine import docker_engine
from tests.support.permits import permit

from sandbox_console.egress import ask, bundle, records, rule_files
from sandbox_console.model.egress import EgressRecord, EgressRule

__all__ = ["docker_engine", "permit"]


class Running:
    """The gateway as it ships: a zipapp in a process of its own, without site-packages."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder = folder
        for name in ("policy", "records"):
            (folder / name).mkdir(parents=True)
        self.hosts: dict[str, tuple[str, ...]] = {}
        self.rules: tuple[EgressRule, ...] = ()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def allow(self, *rules: str | EgressRule, hosts: dict[str, tuple[str, ...]] | None = None) -> None:
        """Put rules in force."""
        self.rules = tuple(EgressRule(one) if isinstance(one, str) else one for one in rules)
        self.hosts = self.hosts if hosts is None else hosts
        rule_files.save(self.folder / "policy", rule_files.Policy("box", self.rules, self.hosts))

    def start(self, *more: str) -> None:
        fd = self._listener.fileno()
        words = [sys.executable, "-I", "-S", str(self._program), "serve", "--folder", str(self.folder), "--fd", str(fd)]
        self._process = subprocess.Popen([*words, *more], pass_fds=[fd], cwd="/", env={})
        ask.ask(self.address, "up.example.com", 443)  # the kernel keeps the question until it is up

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            assert self._process.wait(30) == 0
            self._process = None

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.stop()
        self._listener.close()

    def records(self) -> list[EgressRecord]:
        return list(records.read(self.folder / "records"))

    def reasons(self) -> list[tuple[str, str]]:
        return [(one.host, one.reason) for one in self.records() if not one.allowed]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "gateway.pyz"
    path.write_bytes(bundle.build())
    return path


@pytest.fixture(scope="session")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return world.make_ca(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def outside(ca: Path) -> Iterator[tuple[world.Server, world.Server]]:
    with world.servers(ca) as found:
        yield found


@pytest.fixture
def gateway(tmp_path: Path, program: Path, outside: tuple[world.Server, world.Server]) -> Iterator[Running]:
    """Allows good.example.com and *.wild.example.org on the servers' ports, on an address that a rule names."""
    secure, plain = outside
    made = Running(tmp_path / "gateway", program)
    names = ("good.example.com", "other.example.com", "a.wild.example.org", "evil.example.net")
    made.allow(
        *(
            f"{name}:{port}"
            for name in ("good.example.com", "*.wild.example.org")
            for port in (secure.port, plain.port)
        ),
        f"127.0.0.1:{secure.port}",
        f"127.0.0.1:{plain.port}",
        hosts=dict.fromkeys(names, ("127.0.0.1",)),
    )
    made.start()
    yield made
    made.close()
