"""The draft screen's messages: the sandbox, the problems or effects of the draft, and why a list is empty."""

from __future__ import annotations

from collections.abc import Sequence

from textual.dom import DOMNode

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.tui.egress.draft import Draft
from sandbox_console.tui.egress.draft_text import PROBLEM, Part
from sandbox_console.tui.egress.egress_text import note_lines
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.text.formatting import STATUS, shown_name


def title_parts(draft: Draft, *, loaded: bool) -> Sequence[Part]:
    """Return the sandbox, and how much of its traffic the draft is tested on."""
    found = draft.trial.replayed if loaded else ()
    name = [(f"{shown_name(draft.sandbox)}  ", "bold $primary"), (_state(draft.sandbox), "")]
    counts = (f"   {len(found)} hosts and ports, {sum(one.count for one in found)} requests", "$dim")
    older = f"  {draft.traffic.forgotten} older ones left out" if draft.traffic.forgotten else ""
    return [("Draft of egress rules  ", "$dim"), *name, counts, (older, "$text-warning")]


def status_parts(node: DOMNode, draft: Draft, row: int) -> Sequence[Part]:
    """Return what is wrong, that in the line ``row`` first, or else what would happen."""
    if problems := draft.trial.problems:
        at = row if row in problems else min(problems)
        more = f"  ({len(problems) - 1} more)" if len(problems) > 1 else ""
        return [(f"✕ Line {at + 1}: {clean(problems[at], cap=300)}{more}", PROBLEM)]
    if (action := draft.action) is None:
        return [("Nothing differs from the rules in force.", "$dim")]
    if draft.refusal:
        refusal = clean(draft.refusal, cap=300)
        return [(f"✕ {refusal}; if you apply it, it is refused and recorded.", PROBLEM)]
    return [(hint(node, "draft-apply", "applies it, after a question."), "$dim"), *note_lines(draft.notes(action))]


def why_empty(node: DOMNode, draft: Draft) -> str:
    """Return why no host is listed, or an empty string if some are."""
    if draft.trial.rows:
        return ""
    if draft.trial.replayed:
        everything = hint(node, "draft-changes-only", "shows all of it.")
        return f"No recorded request would be decided differently. {everything}"
    return "Nothing is on record: it has not asked for any host yet."


def _state(sandbox: Sandbox) -> str:
    return f"{STATUS[sandbox.status][0]} {sandbox.status}"
