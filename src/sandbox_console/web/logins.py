"""Logins: the tokens and passwords that open them, and when they end."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_console.errors import ConfigError, NotFound
from sandbox_console.hostfs.files import opened
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.service.people.identity import Identity
from sandbox_console.service.people.users import Users
from sandbox_console.service.tokens import Token, Tokens
from sandbox_console.web.guess_limits import Guesses

TOKEN_VARIABLE = "SANDBOX_CONSOLE_TOKEN"  # noqa: S105 - the variable's name
HASHES_AT_ONCE = 2
"""Passwords that are checked at a time. Each takes 64 MiB."""
LIFETIME_S = 12 * 3600.0
MOST_LOGINS, MOST_LOGINS_OF_ALL = 32, 1024
"""Of one person, and altogether; the oldest one then ends."""
_SHORTEST_TOKEN = 16


class WrongToken(Exception):
    """The token, or the name and password, are wrong, or the token was already used."""


class TooManyFailures(WrongToken):
    """It is wrong, and not the first of many within a minute. A password was not even checked."""


@dataclass(frozen=True)
class Login:
    """A browser that has shown a token or a password. ``person`` is whose it was; None for the server's own token.

    ``cookie`` goes into an HttpOnly cookie. Cookies ignore ports, so any server on this host name sees it;
    ``key`` is kept by the page's own origin, port included, and both are needed for a websocket.
    """

    id: str
    peer: str
    expires: float
    cookie: str = field(repr=False)
    key: str = field(repr=False)
    token: Token | None = None
    person: Identity | None = None
    by: str = "token"

    @property
    def actor(self) -> str:
        """The name in the audit log, with that of the person, or of a token from ``tokens add`` that is nobody's."""
        name = self.person.name if self.person else self.token.name if self.token else ""
        return f"browser:{name}{'.' if name else ''}{self.id}@{self.peer}"

    @property
    def whose(self) -> str:
        """Who has it: a person, a token that is nobody's, or the server's owner. Equal in all logins of one."""
        return _whose(self.person, self.token)

    @property
    def sees_all(self) -> bool:
        """Whether it may see and end everybody's sessions: the server's own token, and admins without labels."""
        if self.person is None:
            return self.token is None
        rights = self.person.rights
        return rights.role == "admin" and not rights.labels

    def holds(self, key: str) -> bool:
        """Whether a page's key is this login's."""
        return hmac.compare_digest(_digest(key), _digest(self.key))


class Logins:
    """The logins of one server. Times are in seconds of ``clock``."""

    def __init__(
        self, token: str | None = None, *, clock: Callable[[], float] = time.monotonic, tokens: Tokens | None = None,
        users: Users | None = None,
    ) -> None:  # fmt: skip
        """Use the operator's token, which may be used repeatedly, or make one for a single login.

        ``tokens`` are additional ones. Those with the scope ``page`` open logins, which end when the token is removed.
        ``users`` log in with their passwords. Their logins end when anything about them is changed.
        """
        self._tokens = tokens
        self.reusable = token is not None
        self.token = token or secrets.token_urlsafe(32)
        self.cookie_name = f"sandbox_console_{secrets.token_hex(4)}"
        self._users = users
        self._clock = clock
        self._logins: dict[bytes, Login] = {}
        self._guesses = Guesses(clock)
        self._hashing = asyncio.Semaphore(HASHES_AT_ONCE)

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
            return self._add(peer, known, self._owner(known))
        if not self._guesses.take_token():
            raise TooManyFailures
        raise WrongToken

    async def exchange_password(self, name: str, password: str, peer: str) -> Login:
        """A new login for a name and its password. Raises WrongToken, TooManyFailures, ConfigError.

        Passwords can be guessed, so beyond the limit none is checked, not even the right one. Who is locked out by
        others' guesses still has tokens.
        """
        if self._users is None or not self._guesses.take_password(name, peer):
            raise TooManyFailures
        async with self._hashing:
            user = await asyncio.to_thread(self._users.with_password, name, password)
        if user is None:
            raise WrongToken
        self._guesses.was_right(name, peer)
        return self._add(peer, None, Identity(user.name, user), "password")

    def admit(self, person: Identity, peer: str, by: str) -> Login:
        """A new login for somebody whom a trusted proxy or a provider has identified."""
        return self._add(peer, None, person, by)

    def named(self, name: str) -> Identity | None:
        """The user of this name, who needs no password because a trusted proxy names them. Raises ConfigError."""
        user = self._users.named(name) if self._users is not None and name else None
        return Identity(user.name, user) if user is not None else None

    def count_failure(self) -> bool:
        """Count a login that failed elsewhere. Returns False if there were too many to record this one."""
        return self._guesses.take_token()

    @property
    def asks_for_passwords(self) -> bool:
        """Whether there is anybody who has a password. Raises ConfigError."""
        return self._users is not None and any(user.password for user in self._users.every())

    def known_name(self, name: str) -> str:
        """The name if it is a user's, else nothing: a stranger's text, perhaps a password, is not for the log."""
        return name if self._users is not None and self._users.named(name) is not None else ""

    def over(self, login: Login) -> str:
        """Why a login has ended; empty if it has not."""
        if login.expires <= self._clock():
            return "the login has expired"
        if self._taken_away(login):
            return "its token or user was changed or removed"
        return "" if self._logins.get(_digest(login.cookie)) is login else "the login has ended"

    def _in_the_way(self, whose: str) -> bytes | None:
        """The oldest login of this person if there are many, so that nobody pushes others out; else of all, if full."""
        own = [key for key, one in self._logins.items() if one.whose == whose]
        if len(own) >= MOST_LOGINS:
            return own[0]
        return next(iter(self._logins)) if len(self._logins) >= MOST_LOGINS_OF_ALL else None

    def _owner(self, token: Token) -> Identity | None:
        try:
            user = self._tokens.owner(token) if self._tokens else None
        except NotFound:
            raise WrongToken from None
        return Identity(user.name, user) if user is not None else None

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
        """Whether the token that opened a login was removed or has expired, or its user was changed or removed."""
        user = login.person.user if login.person else None
        try:
            if user is not None and (self._users is None or self._users.by_id(user.id) != user):
                return True
            if login.token is None or self._tokens is None:
                return False
            return not any(token == login.token and token.valid(time.time()) for token in self._tokens.every())
        except ConfigError:  # damaging the file must not keep a login alive
            return True

    def _add(self, peer: str, token: Token | None = None, person: Identity | None = None, by: str = "token") -> Login:
        while full := self._in_the_way(_whose(person, token)):
            del self._logins[full]
        cookie, key = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        login = Login(secrets.token_hex(4), peer, self._clock() + LIFETIME_S, cookie, key, token, person, by)
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


def _whose(person: Identity | None, token: Token | None) -> str:
    """Whose a login is: a person's, that of a token that is nobody's, or the server's owner's."""
    return f"person:{person.name}" if person else f"token:{token.id}" if token else ""


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()
