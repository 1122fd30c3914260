"""The keys by which OpenSSH's client and ``proxy`` know each other. They are made on first use and kept in a folder.

Only a parent process can reach ``proxy``, by its pipes. The keys keep the client from asking questions, and keep keys
of the user's own out of it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_console.errors import ConfigError
from sandbox_console.hostfs import file_lock
from sandbox_console.hostfs.owners import another_hand

HOST_ALIAS = "sandbox-console"
"""The name under which ``known_hosts`` has the host key, whatever the sandbox."""

_MOST = 16384
"""The most bytes read of a key's file. An Ed25519 key in OpenSSH's form has 419."""


class KeyFolder:
    """``ssh`` in the state folder: the host key, the user's key, and a file of known hosts for the client."""

    def __init__(self, state: Path) -> None:
        self.path = state / "ssh"
        self.host_key, self.user_key = self.path / "host_ed25519", self.path / "user_ed25519"
        self.known_hosts = self.path / "known_hosts"

    def make(self) -> None:
        """Make what is missing. Consoles that do so at once end up with the same keys.

        Raises ConfigError if a file cannot be written, or if another user could read or replace it; LockTimeout.
        """
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            if why := another_hand(self.path):
                raise ConfigError(f"{self.path} is not used: {why}", hint="it must be yours alone: chown, chmod 700")
            with self._locked():
                public = [self._key(path) for path in (self.host_key, self.user_key)]
                _write(self.known_hosts, f"{HOST_ALIAS} {public[0]}\n".encode())
                _write(self.user_key.with_suffix(".pub"), f"{public[1]}\n".encode())
        except OSError as error:
            raise ConfigError(f"the keys in {self.path} cannot be made: {error.strerror}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        path = self.path / "lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            file_lock.take(lock, path)
            yield
        finally:
            os.close(lock)

    def _key(self, path: Path) -> str:
        """The public half of a key, as a line of text. The key is made if it is not there."""
        import asyncssh

        if not os.path.lexists(path):
            _write(path, asyncssh.generate_private_key("ssh-ed25519", comment=HOST_ALIAS).export_private_key())
        try:
            key = asyncssh.import_private_key(private(path))
        except asyncssh.KeyImportError:
            hint = f"move it away, and a new one is made: mv {path} {path}.damaged"
            raise ConfigError(f"{path} is not a private key", hint=hint) from None
        return key.export_public_key().decode().strip()


def private(path: Path) -> bytes:
    """The contents of a private key's file. Raises ConfigError if others could have read or replaced it; OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(f"{path} is not a file of yours", hint="move it away, and a new one is made")
        if status.st_mode & 0o077:
            how = f"mode {stat.S_IMODE(status.st_mode):04o}"
            raise ConfigError(f"others may read {path} ({how})", hint="remove it, and a new one is made")
        return os.read(fd, _MOST)
    finally:
        os.close(fd)


def _write(path: Path, data: bytes) -> None:
    """Write a whole file of mode 0600 or nothing, under the folder's lock. An equal one is left alone."""
    fresh = path.with_name(f"{path.name}.new")
    if path.is_file() and not path.is_symlink() and path.read_bytes() == data:
        return
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)  # O_EXCL follows no link
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
