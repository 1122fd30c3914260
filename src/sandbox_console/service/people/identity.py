"""Who has logged in, and how a process that works for this person learns what the person may do."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from sandbox_console.model.access import FULL, NONE, Access, AccessSource
from sandbox_console.service.people.rights import of_user
from sandbox_console.service.people.users import User, Users

VARIABLE = "SANDBOX_CONSOLE_PERSON"
"""The environment variable of a process that works for one person."""


class Identity(Struct, frozen=True):
    """A person: a ``user`` of the file, or one that a provider has named, whose ``access`` it decides.

    ``proof`` is the provider's token, with which the person logs out there.
    """

    name: str
    user: User | None = None
    access: Access = NONE
    proof: str = ""

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, {self.rights.described})"

    @property
    def rights(self) -> Access:
        """What the person could do when logging in."""
        return self.user.access if self.user is not None else self.access

    @property
    def passed_on(self) -> str:
        """The value of VARIABLE. It names a user, whose rights are looked up again, and contains no secret."""
        told = _Passed("user", self.user.id) if self.user is not None else _Passed("provider", access=self.access)
        return msgspec.json.encode(told).decode()


class _Passed(Struct, frozen=True, forbid_unknown_fields=True):
    by: Literal["user", "provider"]
    user: str = ""
    access: Access = NONE


def rights_of_process(passed_on: str | None, users: Users) -> AccessSource:
    """The rights of a process with this value of VARIABLE: all if it is not set, and none if it cannot be read."""
    if passed_on is None:
        return lambda: FULL
    try:
        told = msgspec.json.decode(passed_on, type=_Passed)
    except msgspec.DecodeError:
        return lambda: NONE
    return of_user(users, told.user) if told.by == "user" else lambda: told.access
