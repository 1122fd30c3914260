"""A draft of egress rules as marks, rows and text. Pure; all its text is clean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from sandbox_console.model.egress import REASONS, Effect, EgressRule
from sandbox_console.model.text import clean
from sandbox_console.service import Replayed, Tally, replay
from sandbox_console.service.reads.egress_draft import DraftLine, read_draft
from sandbox_console.tui.widgets.table.table import Row
from sandbox_console.tui.widgets.table.table_layout import Column

Part = tuple[str, str]
COLUMNS = (
    Column("host", "HOST", 16, 60, priority=0, flex=True),
    Column("port", "PORT", 5, 6, align="right", priority=1),
    Column("count", "ASKED", 6, 8, align="right", priority=0),
    Column("present", "NOW", 9, 9, priority=1),
    Column("would", "DRAFT", 13, 13, priority=0),
    Column("by", "BY", 14, 60, priority=1),
)
_SAID = {True: ("● allowed", "ok"), False: ("⊘ denied", "error")}
_FIRST = {"denied": 0, "allowed": 1, "": 2}
PROBLEM = "$text-error"


class Trial(Struct, frozen=True):
    """A draft tested on recorded traffic."""

    lines: Sequence[DraftLine] = ()
    replayed: Sequence[Replayed] = ()
    rows: Sequence[Row] = ()

    @property
    def rules(self) -> Sequence[EgressRule]:
        """The rules of the valid lines."""
        return [line.rule for line in self.lines if line.rule is not None]

    @property
    def problems(self) -> Mapping[int, str]:
        """The problems by line, counted from 0."""
        return {at: line.problem for at, line in enumerate(self.lines) if line.problem}


def try_draft(
    text: str, tallies: Sequence[Tally], rules: Sequence[EgressRule], now: float, *, allow_ip: bool, changes: bool
) -> Trial:
    """Parse a draft and replay it. ``changes`` keeps only rows that differ. Takes a second for thousands of hosts."""
    lines = read_draft(text, now, known=rules, allow_ip=allow_ip)
    draft = [line.rule for line in lines if line.rule is not None]
    found = sorted(
        replay(tallies, draft, rules=rules, now=now), key=lambda one: (_FIRST[one.change], -one.count, one.host)
    )
    return Trial(lines, found, [_row(one) for one in found if one.change or not changes])


def _row(one: Replayed) -> Row:
    host = clean(one.host, cap=253) or "(no name)"
    present, would = _SAID[one.present], _SAID[one.would]
    by = clean(one.rule, cap=80) or REASONS.get(one.reason, clean(one.reason, cap=60))
    draft = f"{would[0]} new" if one.change else would[0]
    cells = (host, str(one.port), str(one.count), present[0], draft, by)
    style = would[1] if one.change else "dim"
    return Row(
        (one.host, one.port),
        cells,
        (style if one.change else "", "dim", "", present[1] if one.change else "dim", style, "dim"),
        (host, one.port, one.count, present[0], draft, by),
    )


def summary_words(trial: Trial) -> list[Part]:
    """Return how many hosts and ports the draft changes, and how often these were requested."""
    parts: list[Part] = []
    for change, glyph, style in (("denied", "⊘", "$text-error"), ("allowed", "●", "$text-success")):
        found = [one for one in trial.replayed if one.change == change]
        requests = sum(one.count for one in found)
        parts.append((f"{glyph} {len(found)} newly {change} ({requests})  ", style if found else "$dim"))
    stay = [one for one in trial.replayed if not one.change]
    passing = sum(one.would for one in stay)
    return [*parts, (f"{len(stay)} as now: {passing} allowed, {len(stay) - passing} denied", "$dim")]


def impact_words(trial: Trial) -> str:
    """Return a sentence about what a draft would change in the recorded traffic."""
    counts = {word: [one.count for one in trial.replayed if one.change == word] for word in ("allowed", "denied")}
    changes = ", ".join(f"{len(found)} newly {word} ({sum(found)} times)" for word, found in counts.items() if found)
    return f"On record: {changes}." if changes else "No recorded request would be decided differently."


def marks(trial: Trial, rules: Sequence[EgressRule], refused: Mapping[int, str]) -> list[Part]:
    """Return the mark of each line: its problem, or what it decides. ``refused`` are the lines the policy refuses."""
    hits: dict[tuple[str, Effect], int] = {}
    for one in trial.replayed:
        effect = Effect.ALLOW if one.would else Effect.DENY
        for key in {(one.rule, effect), (one.address_rule, effect)}:
            hits[key] = hits.get(key, 0) + one.count
    present = {(rule.pattern, rule.effect, rule.until) for rule in rules}
    return [_mark(line, hits, present, refused.get(at, "")) for at, line in enumerate(trial.lines)]


def _mark(
    line: DraftLine,
    hits: Mapping[tuple[str, Effect], int],
    present: set[tuple[str, Effect, float | None]],
    refused: str,
) -> Part:
    if line.problem or refused:
        return f"✕ {clean(line.problem or refused, cap=200)}", PROBLEM
    if line.rule is None:
        return "", ""
    new = (line.rule.pattern, line.rule.effect, line.rule.until) not in present
    count = hits.get((line.rule.pattern, line.rule.effect), 0)
    word = "allows" if line.rule.effect is Effect.ALLOW else "denies"
    text = (
        f"{'+ new  ' if new else ''}{word} {count} on record" if count else f"{'+ new  ' if new else ''}none on record"
    )
    return text, "$text-success" if new else "$dim"
