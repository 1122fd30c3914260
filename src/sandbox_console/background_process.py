"""Processes of ours that outlive the command that started them: start one detached, find it again, end it.

A process has a name in a folder that only its user may enter. ``NAME.lock`` is held (flock) for as long as the process
lives, so that there is one of a name; ``NAME.sock`` is where it listens. After an upgrade a new name is taken: what
serves the old one ends by itself when nobody asks it any more. Linux only: peers are identified by ``SO_PEERCRED``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import struct
from collections.abc import Mapping, Sequence

BACKLOG = 512
"""How many callers may wait to be accepted: more of them find nobody."""

_CREDENTIALS = struct.Struct("3i")


class ProcessFolder:
    """The folder of such processes, opened. Nobody else may own it, enter it or be led elsewhere by it."""

    def __init__(self, path: str, *, make: bool = False) -> None:
        """Open it, with ``make`` after making it. Raises OSError where it is missing, a link, or another's."""
        if make:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - pathlib costs 10 ms
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)  # noqa: PTH102
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(self.fd)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            os.close(self.fd)
            raise PermissionError(f"{path} is not this user's alone")

    def close(self) -> None:
        """Close the folder."""
        os.close(self.fd)

    def connect(self, name: str, timeout_s: float) -> socket.socket | None:
        """A connection to the process of this name and this user; None where there is none."""
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found.settimeout(timeout_s)
        try:
            found.connect(self._address(name))
            if peer(found)[1] == os.geteuid():
                return found
        except OSError:
            pass
        found.close()
        return None

    def listen(self, name: str) -> socket.socket:
        """Listen as the process of this name, in the place of one that died. Only the holder of the lock may."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{name}.sock", dir_fd=self.fd)
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found.bind(self._address(name))
        found.listen(BACKLOG)
        return found

    def leave(self, name: str) -> None:
        """Take both files away: what comes from now on finds nobody. Only the holder of the lock may."""
        for file in (f"{name}.sock", f"{name}.lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file, dir_fd=self.fd)

    def take(self, name: str) -> int | None:
        """The lock of a name as an open file; None where a process has it, or is being started."""
        lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(f"{name}.lock", dir_fd=self.fd, follow_symlinks=False)):
                return lock
        except OSError:  # held, or taken away by the one that held it
            pass
        os.close(lock)
        return None

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> int:
        """Start a process of this name, detached, unless there is one: its pid, or 0. Raises OSError.

        It is given the lock as an open file, whose number is the last word of its command line.
        """
        lock = self.take(name)
        if lock is None:
            return 0
        try:
            return start_detached([*command, str(lock)], env, keep=[lock])
        finally:
            os.close(lock)

    def end(self, name: str, signum: int) -> bool:
        """Send the process of this name a signal; False where there is none."""
        found = self.connect(name, 1.0)
        if found is None:
            return False
        import signal

        with found, contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(peer(found)[0])
            try:
                signal.pidfd_send_signal(process, signum)
            finally:
                os.close(process)
        return True

    def _address(self, name: str) -> str:
        """Through the open folder: no link on the way is followed, and a socket's path has at most 107 bytes."""
        return f"/proc/self/fd/{self.fd}/{name}.sock"


def start_detached(command: Sequence[str], env: Mapping[str, str], *, keep: Sequence[int] = (), held: int = -1) -> int:
    """Start a process with a session of its own, no terminal, no open files but those of ``keep``; gives its pid.

    ``held`` is an open file that it has in place of standard input.
    """
    import subprocess

    process = subprocess.Popen(
        command, env=env, cwd="/", pass_fds=keep, start_new_session=True,
        stdin=held if held >= 0 else subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    process.returncode = 0  # it is nobody's to wait for: without this Python warns that it still runs
    return process.pid


def peer(connection: socket.socket) -> tuple[int, int, int]:
    """The process, user and group that made the other end, as the kernel noted them then."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(data)
    return pid, uid, gid
