"""Stores tokens for callers from elsewhere than the command line: the web page, the HTTP API, MCP and the status page.

A token is 256 random bits, so its SHA-256 is stored and not a slow hash such as Argon2: nobody can guess 256 bits,
however fast the guesses are, while 50 ms of Argon2 for each call would let anybody who sends wrong tokens keep the
server busy.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from sandbox_console.errors import Conflict, NotFound, UsageError
from sandbox_console.model.access import FULL, Access
from sandbox_console.service.people.credential_file import SCOPES, CredentialFile, Scope, Token, User

__all__ = ["SCOPES", "Scope", "Token", "Tokens"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_TEXT = re.compile(r"sct_([0-9a-f]{12})_([A-Za-z0-9_-]{43})\Z")


class Tokens:
    """The tokens of the file of credentials. A removed one is refused from then on."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = CredentialFile(path)
        self._clock = clock

    def every(self) -> Sequence[Token]:
        """All stored tokens, oldest first. Raises ConfigError for a file that others could read or change."""
        return list(self._file.read().tokens)

    def find(self, text: str, scope: Scope) -> Token | None:
        """The token with this text, if it is valid for a scope. Raises ConfigError."""
        every = self._file.read()
        parts = _TEXT.match(text)
        known = next((one for one in every.tokens if one.id == parts[1]), None) if parts else None
        same = hmac.compare_digest(_hash(text), known.sha256 if known else "")
        return known if known and same and scope in known.scopes and known.valid(self._clock()) else None

    def owner(self, token: Token) -> User | None:
        """The user whose token it is; None if it is nobody's. Raises NotFound if that user was removed."""
        if not token.user:
            return None
        for user in self._file.read().users:
            if user.id == token.user:
                return user
        raise NotFound(f"the user of the token {token.name} was removed")

    def access(self, token: Token) -> Access:
        """What the bearer of a token may do: what its user may, or everything. Raises NotFound as `owner` does."""
        user = self.owner(token)
        return user.access if user is not None else FULL

    def add(
        self, name: str, scopes: Sequence[str], lifetime_s: float | None = None, user: str = ""
    ) -> tuple[Token, str]:
        """Make a token. Its text is returned once and stored nowhere. ``user`` is the name of the user who gets it.

        Raises UsageError, Conflict, NotFound for an unknown user, ConfigError.
        """
        if not _NAME.match(name):
            raise UsageError(f"{name!r} is not a name for a token", hint="letters, digits, '-', '_' and '.'")
        chosen = tuple(one for one in SCOPES if one in scopes)
        if not chosen or set(scopes) - set(SCOPES):
            raise UsageError(
                "a token needs at least one known scope", hint=f"--scope, one or more of {', '.join(SCOPES)}"
            )
        with self._file.changing() as content:
            owner = next((one.id for one in content.users if one.name == user), "")
            if user and not owner:
                raise NotFound(f"no user is called {user!r}", hint="sandbox-console users ls")
            if any(one.name == name for one in content.tokens):
                raise Conflict(f"a token is already called {name!r}", hint=f"sandbox-console tokens rm {name}")
            if any(one.name == name for one in content.users):  # both are names in the audit log
                raise Conflict(f"a user is already called {name!r}", hint=f"sandbox-console users token {name}")
            key, now = secrets.token_hex(6), self._clock()
            text = f"sct_{key}_{secrets.token_urlsafe(32)}"
            expires = None if lifetime_s is None else now + lifetime_s
            token = Token(key, name, chosen, _hash(text), now, expires, owner)
            content.tokens.append(token)
        return token, text

    def remove(self, name: str) -> Token:
        """Remove a token, by name or id. Raises NotFound, ConfigError."""
        with self._file.changing() as content:
            for token in content.tokens:
                if name in (token.name, token.id):
                    content.tokens.remove(token)
                    return token
            raise NotFound(f"no token is called {name!r}", hint="sandbox-console tokens ls")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
