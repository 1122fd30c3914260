"""A Podman service of our own, in a network and mount namespace of its own, with storage of its own.

It answers the same API as an engine of Docker's, so it has the same helpers. It is ended by its own pid, after its
containers, whose conmon processes outlive it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.engine import DockerEngine, until
from tests.support.require import missing


class PodmanEngine(DockerEngine):
    """One private service: start, crash, stop; everything it keeps is under ``folder``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.socket = folder / "podman.sock"
        self._pidfile = folder / "podman.pid"
        self._log = folder / "podman.log"

    def crash(self) -> None:
        """kill -9: its socket stays behind, its containers live on."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def halt(self) -> None:
        """SIGTERM, as a service manager stops it: its containers live on."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGTERM)
        self._process.wait()

    def podman(self, *words: str) -> str:
        """The podman command on the same storage; raises with its stderr."""
        command = ["nsenter", f"--net=/proc/{self.pid}/ns/net", f"--mount=/proc/{self.pid}/ns/mnt", *self._program()]
        done = subprocess.run([*command, *words], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def _program(self) -> list[str]:
        places = (("--root", "data"), ("--runroot", "run"), ("--tmpdir", "tmp"))
        folders = [word for option, name in places for word in (option, str(self.folder / name))]
        return ["podman", *folders, "--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", "runc"]

    def _command(self) -> list[str]:
        self.socket.unlink(missing_ok=True)
        # Podman asks for 1,048,576 open files and 4,194,304 processes, which root in a container of CI may not have.
        settings = self.folder / "containers.conf"
        settings.write_text('[containers]\ndefault_ulimits = ["nofile=16384:16384", "nproc=16384:16384"]\n')
        serve = [*self._program(), "system", "service", "--time", "0", self.url]
        # $$ is the service's own pid, since exec keeps it.
        script = 'busybox ip link set lo up; echo $$ > "$0"; exec "$@"'
        environment = ["env", f"CONTAINERS_CONF={settings}"]
        apart = ["unshare", "--net", "--mount", "--propagation", "slave"]
        return [*environment, *apart, "sh", "-c", script, str(self._pidfile), *serve]

    def _shims(self) -> list[int]:
        """The conmon processes of its containers and of no other's: each has its folder among its arguments."""
        mark, found = str(self.folder).encode(), []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdecimal() else [b""]
                if words[0].endswith(b"conmon") and any(mark in word for word in words):
                    found.append(int(entry.name))
        return found


@contextlib.contextmanager
def private_podman() -> Iterator[PodmanEngine]:
    """A running service with the test images, gone at the end."""
    engine = PodmanEngine(Path(tempfile.mkdtemp(prefix="sc-podman-", dir="/tmp")))
    try:
        engine.start()
        engine.build_images()
        yield engine
    finally:
        engine.stop()
        until(lambda: not engine._shims(), 15, "a conmon is left")


@pytest.fixture(scope="session")
def podman_engine() -> Iterator[PodmanEngine]:
    """The Podman service of this test session."""
    if reason := missing("podman"):
        pytest.skip(f"podman: {reason}")
    with private_podman() as engine:
        yield engine
