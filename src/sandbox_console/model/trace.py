"""The trace of a caller, which an action's row in the audit log carries: W3C Trace Context's ``traceparent``.

Source: https://www.w3.org/TR/trace-context/#traceparent-header
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

VARIABLE = "TRACEPARENT"
"""The environment variable by which a program that starts this one passes its trace on."""

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?\Z", re.ASCII)
_called_in: ContextVar[str] = ContextVar("sandbox_console_traceparent", default="")


class TraceParent(Struct, frozen=True):
    """A span of the caller: the ids of its trace (16 bytes) and its own (8 bytes)."""

    trace_id: bytes
    span_id: bytes


def parse_traceparent(text: str) -> TraceParent | None:
    """The caller's span; None if the text is not a valid ``traceparent``."""
    parts = _FORM.match(text) if len(text) <= 512 else None
    if parts is None or parts[1] == "ff" or (parts[1] == "00" and parts[5]):
        return None
    found = TraceParent(bytes.fromhex(parts[2]), bytes.fromhex(parts[3]))
    return found if any(found.trace_id) and any(found.span_id) else None


@contextmanager
def traced(text: str) -> Iterator[None]:
    """Record this ``traceparent`` with actions that are begun in the block. One that is not valid is ignored."""
    before = _called_in.set(text if parse_traceparent(text) else "")
    try:
        yield
    finally:
        _called_in.reset(before)


def caller_trace() -> str:
    """The ``traceparent`` of the block that this runs in, or else of the program that started this one; or empty."""
    if called := _called_in.get():
        return called
    given = os.environ.get(VARIABLE, "")
    return given if parse_traceparent(given) else ""
