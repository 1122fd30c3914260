"""Hashes passwords with Argon2id (RFC 9106's second recommendation), and checks them.

The check of an unknown name takes as long as that of a known one, so the time tells nobody which names exist.
"""

from __future__ import annotations

import secrets
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from sandbox_console.errors import UsageError

SHORTEST = 10
LONGEST = 1024
"""Characters of a password. Each check reads all of it, so there is a limit."""

_HASHER = PasswordHasher()


def hashed(password: str) -> str:
    """The hash to store. Raises UsageError for a password that is too short or too long."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise UsageError(
            f"a password has {SHORTEST} to {LONGEST} characters, and this one has {len(password)}",
            hint="several words are easy to remember and hard to guess",
        )
    return _HASHER.hash(password.encode("utf-8", "surrogatepass"))


def matches(stored: str, password: str) -> bool:
    """Whether a password is the one that was hashed. It takes 50 ms, and the same without a stored hash."""
    nobodys = _nobodys()  # made by the first check, of whatever name that is
    try:
        right = _HASHER.verify(stored or nobodys, password[:LONGEST].encode("utf-8", "surrogatepass"))
    except (VerificationError, InvalidHashError):
        return False
    return right and bool(stored) and len(password) <= LONGEST


@cache
def _nobodys() -> str:
    """A hash that no password has."""
    return _HASHER.hash(secrets.token_bytes(32))
