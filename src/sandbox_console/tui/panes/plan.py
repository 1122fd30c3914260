"""The changes of an edit as they would be made, said before they are."""

from __future__ import annotations

from textual.content import Content

from sandbox_console.model.text import clean
from sandbox_console.service import Change, How, Plan
from sandbox_console.tui.formdata import shown_value
from sandbox_console.tui.widgets.table_layout import fit_cell

_HOW = {How.LIVE: ("● live", "$text-success"), How.RECREATE: ("↻ recreate", "$text-warning"),
        How.UNSUPPORTED: ("✕ unsupported", "$text-error")}  # fmt: skip


def plan_words(plan: Plan) -> Content:
    """A line for each change, and what all of them together mean."""
    if not plan.changes:
        return Content.assemble(("Nothing differs yet.", "$dim"))
    parts: list[tuple[str, str]] = []
    for change in plan.changes:
        parts += _line(change)
    parts += [(f"! {clean(note, cap=400)}\n", "$text-warning") for note in plan.notes]
    return Content.assemble(*parts, *_summary(plan))


def _line(change: Change) -> list[tuple[str, str]]:
    word, style = _HOW[change.how]
    before, after = (clean(shown_value(change.field, value), cap=60) for value in (change.before, change.after))
    parts = [(fit_cell(word, 15, "left"), style), (fit_cell(change.field, 12, "left"), "bold")]
    parts += [(f"{before} ", "$dim"), ("→ ", "$dim"), (after, "")]
    return [*parts, (f"  {clean(change.reason, cap=200)}" if change.reason else "", "$dim"), ("\n", "")]


def _summary(plan: Plan) -> list[tuple[str, str]]:
    match plan.how:
        case How.UNSUPPORTED:
            return [("Cannot be applied: take the unsupported change back.", "$text-error")]
        case How.RECREATE:
            return [("Applied by making it anew; if that fails the old one stays.", "$text-warning")]
        case _:
            return [("Applied live: it goes on running.", "$text-success")]
