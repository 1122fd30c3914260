"""Urgent rows that wait beside the log for their places in the chain, as readers see them.

They are numbered -1, -2, ... over all sessions, the oldest first, until whoever has the log's lock next moves them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sandbox_console.audit import rows
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.rows import Draft
from sandbox_console.audit.urgent_rows import SUFFIX, UrgentRows


def columns(layout: Layout, newest: sqlite3.Connection | None) -> list[tuple[Any, ...]]:
    """The rows as a table has them. What cannot be read is left out here: verify() tells of it.

    ``newest`` is the newest segment: a console may have moved rows there and died before it could remove its file.
    """
    found = sorted(_drafts(layout), key=lambda one: one[1].at_ns)
    left = [one for one in found if newest is None or not rows.is_in(newest, one[1])]
    places = {(draft.session, number): -place for place, (number, draft) in enumerate(left, 1)}
    return [_row(draft, places[draft.session, number], places) for number, draft in left]


def version(layout: Layout) -> tuple[tuple[str, int], ...]:
    """What changes whenever a row is added or moved."""
    found = []
    for path in sorted(layout.sessions.glob(f"*{SUFFIX}")):
        with suppress(OSError):
            found.append((path.name, path.stat().st_size))
    return tuple(found)


def _drafts(layout: Layout) -> Iterator[tuple[int, Draft]]:
    keys = Keys(layout.key)
    for path in layout.sessions.glob(f"*{SUFFIX}"):
        with suppress(OSError, ValueError):
            yield from UrgentRows(path, keys).rows().items()


def _row(draft: Draft, seq: int, places: dict[tuple[str, int], int]) -> tuple[Any, ...]:
    ref = draft.ref
    if ref is not None and ref < 0:
        ref = places.get((draft.session, ref), ref)
    return (
        seq, draft.at_ns, str(draft.kind), ref, draft.actor, draft.session, draft.request_id, draft.action,
        draft.backend, draft.target, str(draft.outcome), draft.dur_us, rows.canonical(draft.body), b"", b"",
    )  # fmt: skip
