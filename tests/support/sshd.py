"""A real OpenSSH server on loopback, with keys, configuration and log of its own; ended by its pid."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SSHD = "/usr/sbin/sshd"


class Sshd:
    """One server. ``folder`` holds the client's ``.ssh`` too: set HOME to it.

    ``enter`` are words before its command, such as those that enter another network, where it has ``address``.
    """

    def __init__(
        self, folder: Path, name: str, options: str, address: str = "127.0.0.1", enter: tuple[str, ...] = ()
    ) -> None:
        self.home = folder
        self.address, self._enter = address, enter
        self.port = _free_port()
        self._folder = folder / name
        self._folder.mkdir()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._keys()
        config = self._folder / "sshd_config"
        config.write_text(
            f"ListenAddress {self.address}\nPort {self.port}\nHostKey {self._folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {self.home}/.ssh/id_ed25519.pub\nStrictModes no\nUsePAM no\nLogLevel DEBUG3\n"
            f"AcceptEnv *\n{self._options}\n"
        )
        Path("/run/sshd").mkdir(exist_ok=True)  # OpenSSH insists on this empty folder when it is started by root
        with (self._folder / "log").open("ab") as log:
            # A process group of its own: a server's children have the sessions, and are stopped and ended with it.
            self._process = subprocess.Popen(
                [*self._enter, SSHD, "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL, stderr=log, start_new_session=True,
            )  # fmt: skip
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex((self.address, self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError(self.said())

    def trusted(self, alias: str = "") -> None:
        """Put its host key into the client's known_hosts."""
        key = " ".join((self._folder / "host_key.pub").read_text().split()[:2])
        with (self.home / ".ssh/known_hosts").open("a") as known:
            known.write(f"{alias or f'[{self.address}]:{self.port}'} {key}\n")

    def said(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def freeze(self) -> None:
        for pid in self._pids():
            os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._pids():
            os.kill(pid, signal.SIGCONT)

    def cut(self) -> None:
        """End every session, and leave the server."""
        for pid in self._pids()[1:]:
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        for pid in reversed(self._pids()):
            os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def _pids(self) -> list[int]:
        """The server and all its descendants: each connection's processes have a session of their own."""
        if self._process is None or self._process.poll() is not None:
            return []
        found = [self._process.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found

    def _keys(self) -> None:
        (self.home / ".ssh").mkdir(mode=0o700, exist_ok=True)
        for key in (self._folder / "host_key", self.home / ".ssh/id_ed25519"):
            if not key.exists():
                subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)


@contextmanager
def running(
    folder: Path, name: str = "sshd", options: str = "", address: str = "127.0.0.1", enter: tuple[str, ...] = ()
) -> Iterator[Sshd]:
    server = Sshd(folder, name, options, address, enter)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
