"""What a caller may do, looked up anew for each action, so that a change or a removal holds at once."""

from __future__ import annotations

from msgspec import structs

from sandbox_console.errors import ConsoleError
from sandbox_console.model.access import NONE, Access, AccessSource
from sandbox_console.service.people.credential_file import Token
from sandbox_console.service.people.users import Users
from sandbox_console.service.tokens import Tokens


def of_token(tokens: Tokens, token: Token) -> AccessSource:
    """The rights of a token's bearer in a server that chooses itself which folders a sandbox gets."""

    def now() -> Access:
        try:
            there = token in tokens.every()
            return structs.replace(tokens.access(token), folders=True) if there else NONE
        except ConsoleError:  # a removed user, or a damaged file, which must keep nobody's rights alive
            return NONE

    return now


def of_user(users: Users, id_: str) -> AccessSource:
    """The rights of a user, by id."""

    def now() -> Access:
        try:
            user = users.by_id(id_)
        except ConsoleError:
            return NONE
        return user.access if user is not None else NONE

    return now


def person(tokens: Tokens, token: Token) -> str:
    """The name of a token's user; empty if it has none. Raises NotFound if the user was removed."""
    user = tokens.owner(token)
    return user.name if user is not None else ""
