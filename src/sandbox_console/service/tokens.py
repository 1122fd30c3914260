"""Stores tokens for callers from elsewhere than the command line: the web page, the HTTP API, MCP and the status page.

A token is 256 random bits, so its SHA-256 is stored and not a slow hash such as Argon2: nobody can guess 256 bits,
however fast the guesses are, while 50 ms of Argon2 for each call would let anybody who sends wrong tokens keep the
server busy.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from sandbox_console.errors import ConfigError, Conflict, NotFound, UsageError
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.service.config import refuse_strangers

Scope = Literal["page", "api", "mcp", "status", "microsandbox"]
SCOPES: tuple[Scope, ...] = ("page", "api", "mcp", "status", "microsandbox")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_TEXT = re.compile(r"sct_([0-9a-f]{12})_([A-Za-z0-9_-]{43})\Z")
_MOST_BYTES = 4 << 20


class Token(Struct, frozen=True):
    """A stored token. ``sha256`` is of the whole token; ``expires_at`` is in Unix seconds, None for never."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    created_at: float
    expires_at: float | None = None

    def valid(self, now: float) -> bool:
        """Whether it has not expired."""
        return self.expires_at is None or now < self.expires_at


class _File(Struct, forbid_unknown_fields=True):
    tokens: list[Token]
    version: Literal[1] = 1


class Tokens:
    """The file of tokens. It is read again when it has changed, so that a removed token is refused from then on."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._seen: tuple[int, ...] = ()
        self._tokens: dict[str, Token] = {}

    def every(self) -> Sequence[Token]:
        """All stored tokens, oldest first. Raises ConfigError for a file that others could read or change."""
        self._read()
        return list(self._tokens.values())

    def find(self, text: str, scope: Scope) -> Token | None:
        """The token with this text, if it is valid for a scope. Raises ConfigError."""
        self._read()
        parts = _TEXT.match(text)
        known = self._tokens.get(parts[1]) if parts else None
        same = hmac.compare_digest(_hash(text), known.sha256 if known else "")
        return known if known and same and scope in known.scopes and known.valid(self._clock()) else None

    def add(self, name: str, scopes: Sequence[str], lifetime_s: float | None = None) -> tuple[Token, str]:
        """Make a token. Its text is returned once and stored nowhere. Raises UsageError, Conflict, ConfigError."""
        if not _NAME.match(name):
            raise UsageError(f"{name!r} is not a name for a token", hint="letters, digits, '-', '_' and '.'")
        chosen = tuple(one for one in SCOPES if one in scopes)
        if not chosen or set(scopes) - set(SCOPES):
            raise UsageError(
                "a token needs at least one known scope", hint=f"--scope, one or more of {', '.join(SCOPES)}"
            )
        with self._locked():
            if any(one.name == name for one in self._tokens.values()):
                raise Conflict(f"a token is already called {name!r}", hint=f"sandbox-console tokens rm {name}")
            key, now = secrets.token_hex(6), self._clock()
            text = f"sct_{key}_{secrets.token_urlsafe(32)}"
            token = Token(key, name, chosen, _hash(text), now, None if lifetime_s is None else now + lifetime_s)
            self._write([*self._tokens.values(), token])
        return token, text

    def remove(self, name: str) -> Token:
        """Remove a token, by name or id. Raises NotFound, ConfigError."""
        with self._locked():
            for token in self._tokens.values():
                if name in (token.name, token.id):
                    self._write([other for other in self._tokens.values() if other is not token])
                    return token
        raise NotFound(f"no token is called {name!r}", hint="sandbox-console tokens ls")

    def _read(self) -> None:
        try:
            st = self._path.lstat()
            seen = (st.st_ino, st.st_mtime_ns, st.st_size, st.st_mode, st.st_uid)
            if seen != self._seen:
                data = read_own(self._path, _MOST_BYTES)
                self._check(st)
                self._tokens, self._seen = self._decoded(data), seen
        except FileNotFoundError:
            self._seen, self._tokens = (), {}
        except OSError as error:
            raise self._unusable(error.strerror or str(error)) from None

    def _check(self, st: os.stat_result) -> None:
        refuse_strangers("the file of tokens", self._path)
        if stat.S_IMODE(st.st_mode) & 0o077:
            raise ConfigError(f"{self._path} can be read by others", hint=f"chmod 600 {self._path}")

    def _decoded(self, data: bytes) -> dict[str, Token]:
        try:
            return {token.id: token for token in msgspec.json.decode(data, type=_File).tokens}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._unusable(str(error)) from None

    def _unusable(self, reason: str) -> ConfigError:
        hint = "move it away, then create new tokens: sandbox-console tokens add"
        return ConfigError(f"{self._path} is not a file of tokens: {reason}", hint=hint)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other writers out from the read to the write. Raises ConfigError."""
        lock = self._path.with_suffix(".lock")
        try:
            opened = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"{lock} cannot be opened: {error.strerror}", hint=f"see: ls -ld {lock.parent}") from None
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
            self._read()
            yield
        finally:
            os.close(opened)

    def _write(self, tokens: Sequence[Token]) -> None:
        part = self._path.with_suffix(f".{secrets.token_hex(4)}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(_File(list(tokens)))) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise ConfigError(f"{self._path} cannot be written: {error.strerror}", hint="see the disk: df") from None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
