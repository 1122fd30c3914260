"""Previews the changes of an edit, and how each would be applied."""

from __future__ import annotations

from collections.abc import Iterator

from textual.content import Content

from sandbox_console.model.text import clean
from sandbox_console.service import Change, How, Plan
from sandbox_console.tui.text.form_values import shown_value
from sandbox_console.tui.text.wrap import Part, hanging, set_in
from sandbox_console.tui.widgets.table.table_layout import fit_cell

HOW_WORDS = {How.LIVE: ("● live", "$text-success"), How.RECREATE: ("↻ recreate", "$text-warning"),
             How.UNSUPPORTED: ("✕ unsupported", "$text-error")}  # fmt: skip


_HOW_CELLS, _FIELD, _INSET = 15, 16, 4
_BESIDE = 60
"""The most characters of a value that is shown on the line of its change."""


def plan_words(plan: Plan, width: int = 0) -> Content:
    """Return a line for each change, and their overall effect. Rows have ``width`` cells; 0 means no limit."""
    if not plan.changes:
        return Content.assemble(("Nothing differs yet.", "$dim"))
    return Content.assemble(change_lines(plan, width), *_summary(plan))


def change_lines(plan: Plan, width: int = 0) -> Content:
    """Return a line for each change and each note. ``width`` is as for `plan_words`."""
    parts: list[tuple[str, str]] = []
    for change in plan.changes:
        parts += hanging(_change(change), width or 10_000, _INSET)
    parts += [(f"! {clean(note, cap=400)}\n", "$text-warning") for note in plan.notes]
    return Content.assemble(*parts)


def _change(change: Change) -> Iterator[Part]:
    """Yield a change. Values that are long or have several lines are shown below the field, before and after."""
    word, style = HOW_WORDS[change.how]
    before, after = (shown_value(change.field, value) for value in (change.before, change.after))
    reason = clean(change.reason, cap=200)
    yield fit_cell(word, _HOW_CELLS, "left"), style
    yield fit_cell(change.field, _FIELD, "left"), "bold"
    if "\n" not in before + after and max(len(before), len(after)) <= _BESIDE:
        yield f"{clean(before)} → ", "$dim"
        yield clean(after), ""
        yield (f"  {reason}" if reason else "") + "\n", "$dim"
        return
    yield f"{reason}\n", "$dim"
    yield f"{' ' * _INSET}{set_in(before, _INSET)}\n", "$dim"
    yield "  → ", "$dim"
    yield f"{set_in(after, _INSET)}\n", ""


def _summary(plan: Plan) -> list[tuple[str, str]]:
    match plan.how:
        case How.UNSUPPORTED:
            return [("Cannot be applied: take the unsupported change back.", "$text-error")]
        case How.RECREATE:
            return [("Applied by recreating it; if that fails, the old one stays.", "$text-warning")]
        case _:
            return [("Applied live: it goes on running.", "$text-success")]
