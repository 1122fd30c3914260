"""A shell that a process of its own holds, so that it outlives the console that opened it."""

from __future__ import annotations

import re

from msgspec import Struct

from sandbox_console.model.sandbox import SandboxRef

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")


class Viewer(Struct, frozen=True):
    """Somebody who is attached to a kept shell."""

    actor: str
    read_only: bool


class KeptShell(Struct, frozen=True, kw_only=True):
    """A kept shell as its holder describes it. ``began`` is in seconds since the epoch.

    If the holder does not answer, ``answers`` is False and what it knows is empty. ``left_s`` is the time until it is
    ended.
    """

    id: str
    name: str
    ref: SandboxRef
    sandbox: str
    actor: str
    began: float
    audit_id: int
    answers: bool = False
    pid: int = 0
    cols: int = 0
    rows: int = 0
    recorded: bool = False
    left_s: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    viewers: tuple[Viewer, ...] = ()


def shell_name_problem(name: str) -> str:
    """What is wrong with a shell's name; empty if nothing is."""
    if _NAME.fullmatch(name):
        return ""
    return "letters, digits, '.', '_' and '-', at most 63, and a letter or digit first"


def free_name(sandbox: str, taken: set[str]) -> str:
    """A name for a shell in a sandbox: the sandbox's, with a number if that is taken."""
    base = _OTHER.sub("-", sandbox).strip("-._")[:50] or "shell"
    number = 1
    while (name := base if number == 1 else f"{base}-{number}") in taken:
        number += 1
    return name
