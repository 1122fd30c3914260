"""Starts processes that outlive the command that started them, finds them again and ends them.

A process has a name in a folder that only its user may enter. ``NAME.lock`` is held (flock) for as long as the process
lives, so that there is one process for each name; ``NAME.sock`` is where it listens. After an upgrade a new name is
used, and the process with the old one ends by itself when nobody calls it any more. Linux only: peers are identified by
``SO_PEERCRED``.
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
"""How many callers may wait to be accepted. Further ones cannot connect."""

_CREDENTIALS = struct.Struct("3i")


class ProcessFolder:
    """The open folder of such processes. Nobody else may own it or enter it, and it must not be a link."""

    def __init__(self, path: str, *, make: bool = False) -> None:
        """Open it; with ``make``, create it first. Raises OSError if it is missing, a link, or another user's."""
        if make:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - pathlib costs 10 ms
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)  # noqa: PTH102
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        st = os.fstat(self.fd)
        if st.st_uid != os.geteuid() or stat.S_IMODE(st.st_mode) & 0o077:
            os.close(self.fd)
            raise PermissionError(f"{path} is not this user's alone")

    def close(self) -> None:
        """Close the folder."""
        os.close(self.fd)

    def connect(self, name: str, timeout_s: float) -> socket.socket | None:
        """A connection to the process of this name and this user; None if there is none."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        try:
            sock.connect(self._address(name))
            if peer(sock)[1] == os.geteuid():
                return sock
        except OSError:
            pass
        sock.close()
        return None

    def listen(self, name: str) -> socket.socket:
        """Listen as the process of this name, replacing one that died. Only the holder of the lock may do this."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{name}.sock", dir_fd=self.fd)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind(self._address(name))
        sock.listen(BACKLOG)
        return sock

    def write(self, file: str, data: bytes) -> None:
        """Write a file whole, 0600, replacing an older one; links are not followed. Raises OSError."""
        fresh = f"{file}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=self.fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(fresh, flags, 0o600, dir_fd=self.fd), "wb") as written:  # noqa: PTH123
                written.write(data)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=self.fd)
            raise
        os.rename(fresh, file, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def leave(self, name: str) -> None:
        """Remove both files, so that later callers find nobody. Only the holder of the lock may do this."""
        for file in (f"{name}.sock", f"{name}.lock"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file, dir_fd=self.fd)

    def take(self, name: str) -> int | None:
        """The lock of a name as an open file; None if a process has it or is being started."""
        lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.fd)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(lock), os.stat(f"{name}.lock", dir_fd=self.fd, follow_symlinks=False)):
                return lock
        except OSError:  # held, or removed by its holder
            pass
        os.close(lock)
        return None

    def start(self, name: str, command: Sequence[str], env: Mapping[str, str]) -> int:
        """Start a detached process of this name, unless there is one. Returns its pid, or 0. Raises OSError.

        It gets the lock as an open file, whose number is the last argument of its command line.
        """
        lock = self.take(name)
        if lock is None:
            return 0
        try:
            return start_detached([*command, str(lock)], env, keep=[lock])
        finally:
            os.close(lock)

    def end(self, name: str, signum: int) -> bool:
        """Send a signal to the process of this name; returns False if there is none."""
        sock = self.connect(name, 1.0)
        if sock is None:
            return False
        import signal

        with sock, contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(peer(sock)[0])
            try:
                signal.pidfd_send_signal(process, signum)
            finally:
                os.close(process)
        return True

    def _address(self, name: str) -> str:
        """The path of a socket through the open folder, which follows no links and fits into 107 bytes."""
        return f"/proc/self/fd/{self.fd}/{name}.sock"


def start_detached(command: Sequence[str], env: Mapping[str, str], *, keep: Sequence[int] = (), held: int = -1) -> int:
    """Start a process with its own session, no terminal, and only the open files in ``keep``. Returns its pid.

    ``held`` is an open file that it gets as standard input.
    """
    import subprocess

    process = subprocess.Popen(
        command, env=env, cwd="/", pass_fds=keep, start_new_session=True,
        stdin=held if held >= 0 else subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    process.returncode = 0  # nobody waits for it: without this, Python warns that it is still running
    return process.pid


def peer(connection: socket.socket) -> tuple[int, int, int]:
    """The pid, user and group that made the other end, as the kernel recorded them then."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(data)
    return pid, uid, gid
