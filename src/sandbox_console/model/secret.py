"""A secret once resolved: held as briefly as can be, and never shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Inject = Literal["env", "file", "placeholder"]


@dataclass(frozen=True, slots=True, repr=False)
class ResolvedSecret:
    """A value and how it is handed to the sandbox: a variable called ``name``, or /run/secrets/``name``."""

    name: str
    value: str
    inject: Inject = "env"
    hosts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ResolvedSecret({self.name!r}, ***)"
