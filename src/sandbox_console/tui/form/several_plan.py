"""Says what an edit of several sandboxes does to each: its plan, why one is left out, what it loses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from textual.content import Content

from sandbox_console.model.action import Commit
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.text import clean
from sandbox_console.service import Change, Console, How, Plan, differing
from sandbox_console.service.reads.losses import kept_image
from sandbox_console.tui.form.change_plan import HOW_WORDS
from sandbox_console.tui.form.loss_text import loss_sentence
from sandbox_console.tui.state.verbs import Look
from sandbox_console.tui.text.form_values import shown_value
from sandbox_console.tui.text.formatting import shown_name
from sandbox_console.tui.text.wrap import Part, hanging
from sandbox_console.tui.widgets.table.table_layout import fit_cell

_VALUES, _NAMES = 2, 4
"""How many values before a change, and how many names, are written out."""
_VALUE_CELLS, _HOW_CELLS, _FIELD, _INSET = 60, 15, 16, 4


class Edit(Struct, frozen=True):
    """The change of one sandbox to a spec."""

    sandbox: Sandbox
    spec: SandboxSpec
    plan: Plan
    problems: Mapping[str, str] = {}

    @property
    def left_out(self) -> str:
        """Why nothing is done about it; empty if something is."""
        refused = [one for one in self.plan.changes if one.how is How.UNSUPPORTED]
        words = [f"{one.field} cannot be changed: {one.reason}" for one in refused]
        words += [f"{name}: {text}" for name, text in self.problems.items()]
        return "; ".join(words) or ("" if self.plan.changes else "nothing differs")


async def planned(console: Console, sandbox: Sandbox, spec: SandboxSpec) -> Edit:
    """Return what a change of one sandbox to a spec would do. Raises ConsoleError."""
    plan = await console.plan(sandbox, spec)
    problems = await console.problems(spec, sandbox.ref.backend, sandbox.ref.host)
    return Edit(sandbox, spec, plan, differing(sandbox, spec, problems))


async def look(console: Console, edit: Edit, at: float) -> Look:
    """Return how each field of a sandbox is changed, and what it loses at this time (Unix seconds).

    Raises ConsoleError.
    """
    if edit.left_out:
        return Look(refusal=edit.left_out)
    words = [f"{edit.plan.how}: {', '.join(map(_in_one, edit.plan.changes))}", *edit.plan.notes]
    if edit.plan.how is not How.RECREATE:
        return Look("; ".join(words))
    sandbox = edit.sandbox
    able = await console.capabilities(sandbox.ref.backend, sandbox.ref.host)
    losses = await console.losses(sandbox)
    commits = able.has(Capability.COMMIT)
    words.append(loss_sentence(losses, sandbox))
    if not commits and (losses.files or losses.files_unknown):
        words.append(f"commit is unsupported here ({able.reason(Capability.COMMIT)})")
    return Look("; ".join(words), keep=Commit(sandbox.ref, kept_image(sandbox.name, at)) if commits else None)


def _in_one(change: Change) -> str:
    before, after = (shown_value(change.field, value) for value in (change.before, change.after))
    return f"{change.field} {before} → {after}"


def several_words(edits: Sequence[Edit], width: int) -> Content:
    """Return a line for each field and way of changing it, with its sandboxes, and the effect on all."""
    if not any(edit.plan.changes or edit.problems for edit in edits):
        return Content.styled("Nothing differs yet.", "$dim")
    groups: dict[tuple[How, str, str], list[tuple[Edit, Change]]] = {}
    for edit in edits:
        for change in edit.plan.changes:
            groups.setdefault((change.how, change.field, change.reason), []).append((edit, change))
    parts: list[Part] = []
    for (how, field, reason), members in groups.items():
        parts += hanging(_line(how, field, reason, members), width, _INSET)
    for edit in edits:
        for name, text in edit.problems.items():
            parts += hanging(
                [(f"✕ {shown_name(edit.sandbox)}: {name}: {clean(text, cap=200)}\n", "$text-error")], width, 2
            )
    notes = dict.fromkeys(note for edit in edits for note in edit.plan.notes)
    parts += [(f"! {clean(note, cap=400)}\n", "$text-warning") for note in notes]
    return Content.assemble(*parts, *_summary(edits))


def _line(how: How, field: str, reason: str, members: Sequence[tuple[Edit, Change]]) -> Iterator[Part]:
    word, style = HOW_WORDS[how]
    yield fit_cell(word, _HOW_CELLS, "left"), style
    yield fit_cell(field, _FIELD, "left"), "bold"
    yield f"{_values((change.before for _, change in members), field)} → ", "$dim"
    yield _values((change.after for _, change in members), field), ""
    yield f"  {_names([edit.sandbox for edit, _ in members])}", "$dim"
    yield (f"  {clean(reason, cap=200)}" if reason else "") + "\n", "$dim"


def _values(values: Iterable[object], field: str) -> str:
    found = list(dict.fromkeys(clean(shown_value(field, value)) for value in values))
    shown = [one if len(one) <= _VALUE_CELLS else f"{one[: _VALUE_CELLS - 1]}…" for one in found[:_VALUES]]
    more = f" and {len(found) - _VALUES} others" if len(found) > _VALUES else ""
    return " or ".join(shown) + more


def _names(sandboxes: Sequence[Sandbox]) -> str:
    more = f" and {len(sandboxes) - _NAMES} more" if len(sandboxes) > _NAMES else ""
    return ", ".join(shown_name(one) for one in sandboxes[:_NAMES]) + more


def _summary(edits: Sequence[Edit]) -> list[Part]:
    fit = [edit for edit in edits if not edit.left_out]
    live = sum(edit.plan.how is How.LIVE for edit in fit)
    parts: list[Part] = []
    if live:
        parts.append((f"{live} changed live.  ", "$text-success"))
    if anew := len(fit) - live:
        parts.append((f"{anew} recreated; one whose recreation fails stays as it was.  ", "$text-warning"))
    if left := len(edits) - len(fit):
        parts.append((f"{left} left out.", "$text-warning"))
    return parts
