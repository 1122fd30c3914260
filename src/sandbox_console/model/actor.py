"""Who acts: the user who runs the console or, inside ``acting_as``, somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sandbox_console.model.text import clean

LONGEST = 200
"""The longest name of an actor in the audit log, in characters."""

_acting: ContextVar[str] = ContextVar("sandbox_console_acting", default="")


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Record actions that are begun in this block, or by tasks created in it, as this actor's.

    One console may serve many callers, so a server names the one whose request it carries out. A stranger may have
    chosen the name: control characters in it are made visible, and it is cut at ``LONGEST`` characters.
    """
    before = _acting.set(clean(actor)[:LONGEST])
    try:
        yield
    finally:
        _acting.reset(before)


def acting() -> str:
    """The actor of the ``acting_as`` block that this runs in; empty outside of one."""
    return _acting.get()
