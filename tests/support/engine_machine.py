"""A Docker engine on a machine of its own: network, mounts and processes, so that its process 1 is in its network.

Addresses that it gets are of no interface of this machine, and nothing of it is left when it ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support.engine import START_S, DockerEngine, until


class MachineEngine(DockerEngine):
    """``more`` are further words for dockerd."""

    def __init__(self, folder: Path, *more: str) -> None:
        super().__init__(folder)
        self._more = more

    @property
    def pid(self) -> int:
        """The machine's process 1, as this machine numbers it."""
        assert self._process is not None
        [child] = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(child)

    def run(self, *words: str) -> str:
        """A program of this machine's, in the other's network."""
        return self._run("-n", *words)

    def run_inside(self, *words: str) -> str:
        """The same with its mounts."""
        return self._run("-n", "-m", *words)

    def _run(self, *words: str) -> str:
        entered = ["nsenter", "-t", str(self.pid), *words]
        done = subprocess.run(entered, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def stop(self) -> None:
        """Every process of the machine ends with its first."""
        with contextlib.suppress(OSError, ValueError):
            os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        until(lambda: not self._shims(), START_S, "its containerd did not end")
        self._unmount()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self) -> list[str]:
        command = super()._command()
        at = command.index("sh")
        start = 'busybox ip link set lo up; "$@"; exit'  # a shell as process 1 reaps what is orphaned
        return [
            *command[:at], "--pid", "--fork", "--kill-child", "--mount-proc",
            "sh", "-c", start, *command[at + 3 :], *self._more,
        ]  # fmt: skip


@contextlib.contextmanager
def machine(*more: str) -> Iterator[MachineEngine]:
    """A running engine with the test images, gone at the end."""
    engine = MachineEngine(Path(tempfile.mkdtemp(prefix="sc-machine-", dir="/tmp")), *more)
    try:
        engine.start()
        engine.build_images()
        yield engine
    finally:
        engine.stop()
