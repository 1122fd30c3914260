"""A secret once resolved: held as briefly as can be, and never shown."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Inject = Literal["env", "file", "placeholder"]


class ResolvedSecret(Struct, frozen=True):
    """A value and how it is handed to the sandbox: a variable called ``name``, or /run/secrets/``name``."""

    name: str
    value: str
    inject: Inject = "env"
    hosts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ResolvedSecret({self.name!r}, ***)"
