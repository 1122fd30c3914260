"""What differs from a spec, as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from sandbox_console.model.drift import OWN_NETWORK, DriftState, FieldDrift
from sandbox_console.model.text import clean
from sandbox_console.tui.text.form_values import shown_value
from sandbox_console.tui.text.formatting import DASH

_LONGEST = 200


def drift_parts(rows: Iterable[FieldDrift]) -> Iterator[tuple[str, str]]:
    """Yield each drifted field on a line: what was asked, what is found, and who changed it."""
    for row in rows:
        if row.state is DriftState.DRIFTED:
            yield from _line(row)


def _line(row: FieldDrift) -> Iterator[tuple[str, str]]:
    when = f" {datetime.fromtimestamp(row.at).astimezone():%Y-%m-%d %H:%M:%S}" if row.at is not None else ""
    yield f"≠ {row.field}  ", "bold $text-warning"
    yield f"asked {_value(row.field, row.asked)}, found {_value(row.field, row.found)}", ""
    yield f"  {clean(row.by, cap=_LONGEST)}{when}\n", "$dim"


def _value(field: str, value: object) -> str:
    if isinstance(value, str) or not value:
        return clean(str(value or DASH), cap=_LONGEST) if value != OWN_NETWORK else OWN_NETWORK
    return clean(shown_value(field, value), cap=_LONGEST)
