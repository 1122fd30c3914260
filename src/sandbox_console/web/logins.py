"""Logins: the token, the sessions it opens, and the limit on wrong guesses."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import time
from collections import deque
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_console.errors import ConfigError
from sandbox_console.hostfs.files import opened
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.service.tokens import Token, Tokens

TOKEN_VARIABLE = "SANDBOX_CONSOLE_TOKEN"  # noqa: S105 - the variable's name
FAILURES_A_MINUTE = 5
LIFETIME_S = 12 * 3600.0
MOST_LOGINS = 32
_SHORTEST_TOKEN = 16


class WrongToken(Exception):
    """The token is wrong or was already used."""


class TooManyFailures(WrongToken):
    """The token is wrong, and it is not the first of many within a minute."""


@dataclass(frozen=True)
class Login:
    """A browser that has shown the token.

    ``cookie`` goes into an HttpOnly cookie. Cookies ignore ports, so any server on this host name sees it;
    ``key`` is kept by the page's own origin, port included, and both are needed for a websocket.
    """

    id: str
    peer: str
    expires: float
    cookie: str = field(repr=False)
    key: str = field(repr=False)
    token: Token | None = None

    @property
    def actor(self) -> str:
        """The name in the audit log, with that of the token if it is from ``tokens add``."""
        name = f"{self.token.name}." if self.token else ""
        return f"browser:{name}{self.id}@{self.peer}"

    @property
    def sees_all(self) -> bool:
        """Whether it may see and end everybody's sessions: the owner, who has the server's own token."""
        return self.token is None

    def holds(self, key: str) -> bool:
        """Whether a page's key is this login's."""
        return hmac.compare_digest(_digest(key), _digest(self.key))


class Logins:
    """The logins of one server. Times are in seconds of ``clock``."""

    def __init__(
        self, token: str | None = None, *, clock: Callable[[], float] = time.monotonic, tokens: Tokens | None = None
    ) -> None:
        """Use the operator's token, which may be used repeatedly, or make one for a single login.

        ``tokens`` are additional ones. Those with the scope ``page`` open logins, which end when the token is removed.
        """
        self._tokens = tokens
        self.reusable = token is not None
        self.token = token or secrets.token_urlsafe(32)
        self.cookie_name = f"sandbox_console_{secrets.token_hex(4)}"
        self._clock = clock
        self._logins: dict[bytes, Login] = {}
        self._failures: deque[float] = deque(maxlen=FAILURES_A_MINUTE)

    def exchange(self, token: str, peer: str) -> Login:
        """A new login for the token. Raises WrongToken, or TooManyFailures beyond the limit of wrong ones a minute.

        The limit counts all guesses, wherever they come from. The right token is never refused because of others' wrong
        ones: it is too long to be guessed, so locking its owner out would protect nothing.
        """
        if hmac.compare_digest(_digest(token), _digest(self.token)):
            if not self.reusable:
                self.token = secrets.token_urlsafe(32)
            return self._add(peer)
        if (known := self._tokens.find(token, "page") if self._tokens else None) is not None:
            return self._add(peer, known)
        now = self._clock()
        if len(self._failures) == FAILURES_A_MINUTE and self._failures[0] > now - 60:
            raise TooManyFailures
        self._failures.append(now)
        raise WrongToken

    def find(self, cookie: str) -> Login | None:
        """The valid login of a cookie's value."""
        login = self._logins.get(_digest(cookie))
        if login and (login.expires <= self._clock() or self._taken_away(login)):
            del self._logins[_digest(cookie)]
            return None
        return login

    def remove(self, login: Login) -> None:
        """Forget a login: its cookie opens nothing any more."""
        self._logins.pop(_digest(login.cookie), None)

    def _taken_away(self, login: Login) -> bool:
        """Whether the token that opened a login was removed or has expired."""
        if login.token is None or self._tokens is None:
            return False
        try:
            return not any(token == login.token and token.valid(time.time()) for token in self._tokens.every())
        except ConfigError:  # damaging the file must not keep a login alive
            return True

    def _add(self, peer: str, token: Token | None = None) -> Login:
        while len(self._logins) >= MOST_LOGINS:
            del self._logins[next(iter(self._logins))]
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        login = Login(secrets.token_hex(4), peer, self._clock() + LIFETIME_S, cookie, key, token)
        self._logins[_digest(cookie)] = login
        return login


def given_token(
    file: Path | None, environment: MutableMapping[str, str] = os.environ, ground: GuestFolders = NOBODYS
) -> str | None:
    """The operator's token from a file, or else from the environment, from which it is removed.

    ``ground`` is what guests can change. Raises ConfigError, Conflict.
    """
    value = environment.pop(TOKEN_VARIABLE, None)
    token = _from_file(file, ground) if file else value
    if token is not None and len(token) < _SHORTEST_TOKEN:
        where = file or TOKEN_VARIABLE
        raise ConfigError(
            f"the login token of {where} is shorter than {_SHORTEST_TOKEN} characters",
            hint="make one with: openssl rand -hex 32",
        )
    return token


def _from_file(file: Path, guest_folders: GuestFolders) -> str:
    try:
        with opened(file, guest_folders) as stream:
            mode = os.fstat(stream.fileno()).st_mode
            token = stream.read(4096).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = getattr(error, "strerror", None) or "it is not UTF-8"
        hint = f"(umask 077; openssl rand -hex 32 > {file})"
        raise ConfigError(f"the token file {file} cannot be read: {cause}", hint=hint) from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"the token file {file} can be read by others", hint=f"chmod 600 {file}")
    return token


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
