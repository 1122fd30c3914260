"""The file with users and tokens: read again when it has changed, and written as a whole."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field, structs

from sandbox_console.errors import ConfigError
from sandbox_console.hostfs import file_lock
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.model.access import Access, Role
from sandbox_console.service.config import refuse_strangers

Scope = Literal["page", "api", "mcp", "status", "microsandbox"]
SCOPES: tuple[Scope, ...] = ("page", "api", "mcp", "status", "microsandbox")

_MOST_BYTES = 4 << 20


class Token(Struct, frozen=True, omit_defaults=True):
    """A stored token. ``sha256`` is of the whole token; ``expires_at`` is in Unix seconds, None for never.

    ``user`` is the id of the user whose rights it has; a token without one has all rights.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    created_at: float
    expires_at: float | None = None
    user: str = ""

    def valid(self, now: float) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


class User(Struct, frozen=True):
    """A person. ``password`` is an Argon2 hash; it is empty for one who logs in with a token or through a proxy."""

    id: str
    name: str
    role: Role
    created_at: float
    labels: dict[str, str] = {}
    password: str = field(default="")

    @property
    def access(self) -> Access:
        """What this person may do."""
        return Access(self.role, self.labels)

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.access.described})"


class Credentials(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The content of the file."""

    tokens: list[Token]
    users: list[User] = []
    version: Literal[1] = field(default=1)


class CredentialFile:
    """The file. What was removed from it is refused from then on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._content = Credentials([])

    def read(self) -> Credentials:
        """What it has now. Raises ConfigError if it is damaged, or if others could read or change it."""
        try:
            st = self._path.lstat()
            seen = (st.st_ino, st.st_mtime_ns, st.st_size, st.st_mode, st.st_uid)
            if seen != self._seen:
                data = read_own(self._path, _MOST_BYTES)
                self._check(st)
                self._content, self._seen = self._decoded(data), seen
        except FileNotFoundError:
            self._seen, self._content = (), Credentials([])
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None
        return self._content

    @contextmanager
    def changing(self) -> Iterator[Credentials]:
        """Give a copy, which is written at the end. Other writers wait meanwhile. Raises ConfigError, LockTimeout."""
        lock = self._path.with_suffix(".lock")
        try:
            opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{lock} cannot be opened: {error.strerror}", hint=f"see: ls -ld {lock.parent}") from None
        try:
            file_lock.take(opened, lock)
            now = self.read()
            copy = structs.replace(now, tokens=list(now.tokens), users=list(now.users))
            yield copy
            self._write(copy)
        finally:
            os.close(opened)

    def _check(self, st: os.stat_result) -> None:
        refuse_strangers("the file of tokens", self._path)
        if stat.S_IMODE(st.st_mode) & 0o077:
            raise ConfigError(f"{self._path} can be read by others", hint=f"chmod 600 {self._path}")

    def _decoded(self, data: bytes) -> Credentials:
        try:
            return msgspec.json.decode(data, type=Credentials)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._unusable(str(error)) from None

    def _unusable(self, reason: str) -> ConfigError:
        hint = "move it away, then create new users and tokens: sandbox-console users add, tokens add"
        return ConfigError(f"{self._path} is not a file of tokens: {reason}", hint=hint)

    def _write(self, content: Credentials) -> None:
        part = self._path.with_suffix(f".{secrets.token_hex(4)}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}", hint="see the disk: df") from None
