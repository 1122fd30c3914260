"""Who acts: inside ``acting_as`` somebody else than the user whose console it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sandbox_console.model.text import clean

LONGEST = 200
"""Characters of an actor in the audit log."""

_acting: ContextVar[str] = ContextVar("sandbox_console_acting", default="")


@contextmanager
def acting_as(actor: str) -> Iterator[None]:
    """Record what is begun in this block, and by the tasks made in it, as this actor's.

    One console serves many callers: a server names the one whose request it carries out. The name may be a
    stranger's: control characters in it become visible ones, and it is cut at ``LONGEST`` characters.
    """
    before = _acting.set(clean(actor)[:LONGEST])
    try:
        yield
    finally:
        _acting.reset(before)


def acting() -> str:
    """The actor of the block that this runs in; empty outside of any."""
    return _acting.get()
