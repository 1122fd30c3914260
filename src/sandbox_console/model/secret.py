"""Resolved secrets, held as briefly as possible, and the masking of variables whose names sound secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

MASK = "***"

SECRET_WORD = re.compile(
    r"pass|pwd|secret|token|credential|private|auth|cookie|session|dsn|key",
    re.IGNORECASE,
)
"""Words in the names of variables that hold secrets."""

_USERINFO = re.compile(r"(?<!\w)(\w+://[^\s/:@]*):[^\s/@]+@")

Inject = Literal["env", "file", "placeholder"]


class ResolvedSecret(Struct, frozen=True):
    """A value and how it is handed to the sandbox: a variable called ``name``, or /run/secrets/``name``."""

    name: str
    value: str
    inject: Inject = "env"
    hosts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ResolvedSecret({self.name!r}, ***)"


class Secret(Struct, frozen=True):
    """A secret by value, in memory only: it is on no disk, in no audit log, and not in its own repr.

    ``inject`` is how the sandbox gets it: ``env`` (a variable), ``file`` (/run/secrets/NAME), ``placeholder``, or
    ``auto``: a placeholder if the backend supports them and ``hosts`` are named, else a variable. ``hosts`` are the
    egress patterns it is meant for.
    """

    value: str
    inject: Inject | Literal["auto"] = "auto"
    hosts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Secret({MASK})"


def shown_value(name: str, value: str) -> str:
    """A variable's value as it may be shown. It is masked if its name sounds secret; a password in a URL always is."""
    if value and SECRET_WORD.search(name):
        return MASK
    return _USERINFO.sub(rf"\1:{MASK}@", value)


def shown_env(env: Mapping[str, str]) -> dict[str, str]:
    """Variables as they may be shown."""
    return {name: shown_value(name, value) for name, value in env.items()}
