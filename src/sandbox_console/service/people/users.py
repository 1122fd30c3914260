"""Adds, changes, removes and finds the users of the file of credentials."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import structs

from sandbox_console.errors import Conflict, NotFound, UsageError
from sandbox_console.model.access import Access, Role
from sandbox_console.service.people.credential_file import CredentialFile, Credentials, User

__all__ = ["User", "Users"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,62}\Z")


class Users:
    """The users. A change holds from the next request or action on, also for sessions that are open."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._file = CredentialFile(path)
        self._clock = clock

    def every(self) -> Sequence[User]:
        """All users, oldest first. Raises ConfigError for a file that others could read or change."""
        return list(self._file.read().users)

    def named(self, name: str) -> User | None:
        """The user of this name. Raises ConfigError."""
        return next((one for one in self._file.read().users if one.name == name), None)

    def by_id(self, id_: str) -> User | None:
        """The user with this id, which another user of the same name never has. Raises ConfigError."""
        return next((one for one in self._file.read().users if one.id == id_), None)

    def with_password(self, name: str, password: str) -> User | None:
        """The user who has this name and password. It takes 50 ms of CPU, also for an unknown name.

        Raises ConfigError.
        """
        from sandbox_console.service.people import passwords

        user = self.named(name)
        right = passwords.matches(user.password if user else "", password)
        return user if right else None

    def add(self, name: str, access: Access, password: str = "") -> User:
        """Add a user, without a password if it is empty. Raises UsageError, Conflict, ConfigError."""
        if not _NAME.match(name):
            raise UsageError(f"{name!r} is not a name for a user", hint="letters, digits, '-', '_', '.' and '@'")
        stored = _stored(password)
        with self._file.changing() as content:
            if any(one.name == name for one in content.users):
                raise Conflict(f"a user is already called {name!r}", hint=f"sandbox-console users set {name}")
            if any(token.name == name for token in content.tokens):  # both are names in the audit log
                raise Conflict(f"a token is already called {name!r}", hint="choose another name")
            user = User(secrets.token_hex(6), name, access.role, self._clock(), dict(access.labels), stored)
            content.users.append(user)
        return user

    def change(
        self, name: str, *, role: Role | None = None, labels: Mapping[str, str] | None = None, password: str = ""
    ) -> User:
        """Change what is given; the rest stays. Raises NotFound, UsageError, ConfigError."""
        stored = _stored(password)
        with self._file.changing() as content:
            at = _index(content, name)
            user = content.users[at]
            content.users[at] = structs.replace(
                user,
                role=role or user.role,
                labels=user.labels if labels is None else dict(labels),
                password=stored or user.password,
            )
            return content.users[at]

    def remove(self, name: str) -> User:
        """Remove a user with all tokens. Raises NotFound, ConfigError."""
        with self._file.changing() as content:
            user = content.users.pop(_index(content, name))
            content.tokens = [token for token in content.tokens if token.user != user.id]
        return user


def _stored(password: str) -> str:
    if not password:
        return ""
    from sandbox_console.service.people import passwords  # argon2 is needed by few, and its import takes 20 ms

    return passwords.hashed(password)


def _index(content: Credentials, name: str) -> int:
    for at, user in enumerate(content.users):
        if user.name == name:
            return at
    raise NotFound(f"no user is called {name!r}", hint="sandbox-console users ls")
