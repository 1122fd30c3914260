"""Writes a draft of egress rules as text, one per line, parses it, and compares it with the current rules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, time, timedelta

from msgspec import Struct

from sandbox_console.model import hosts, quantities
from sandbox_console.model.action import ChangeEgress
from sandbox_console.model.egress import Effect, EgressRule
from sandbox_console.model.egress_rules import LIVE, key_of
from sandbox_console.model.sandbox import SandboxRef

RULES_MOST = 200
"""The most rules of a draft. With more, replaying thousands of hosts would lag behind typing."""
_DAY = timedelta(days=1)
_EFFECTS = {"allow": Effect.ALLOW, "deny": Effect.DENY}


class DraftLine(Struct, frozen=True):
    """A parsed line: a rule, nothing (empty or a comment), or why it cannot be a rule."""

    rule: EgressRule | None = None
    problem: str = ""


def write_draft(rules: Iterable[EgressRule], now: float) -> str:
    """Rules as lines; ``now`` is in seconds since the epoch."""
    return "\n".join(_line(rule, now) for rule in rules)


def _line(rule: EgressRule, now: float) -> str:
    within_a_day = rule.until is not None and 0 < rule.until - now < _DAY.total_seconds()
    return _forms(rule)[0 if within_a_day else -1]


def _forms(rule: EgressRule) -> list[str]:
    """A rule as a line. One that expires has two forms, with a time of day or with a date and time, both local."""
    if rule.until is None:
        return [f"{rule.effect} {rule.pattern}"]
    then = datetime.fromtimestamp(rule.until).astimezone()
    return [f"{rule.effect} {rule.pattern} until {one}" for one in (f"{then:%H:%M:%S}", f"{then:%Y-%m-%dT%H:%M:%S}")]


def read_draft(text: str, now: float, *, known: Sequence[EgressRule] = (), allow_ip: bool = False) -> list[DraftLine]:
    """Each line of a draft: ``[allow|deny] PATTERN [for DURATION | until TIME]``, ``#`` begins a comment.

    A line that `write_draft` wrote for a ``known`` rule is that very rule, to the fraction of a second. ``allow_ip`` is
    the policy's opt-in to addresses, which a denial does not need.
    """
    written = {form: rule for rule in known for form in _forms(rule)}
    seen: dict[tuple[Effect, hosts.HostPattern | str], int] = {}
    found: list[DraftLine] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.partition("#")[0].split()
        try:
            rule = _rule(words, now, written, allow_ip=allow_ip) if words else None
        except ValueError as error:
            found.append(DraftLine(problem=str(error)))
            continue
        if rule is not None and len(seen) >= RULES_MOST:
            found.append(DraftLine(problem=f"a draft has at most {RULES_MOST} rules"))
            continue
        first = seen.setdefault((rule.effect, key_of(rule.pattern)), number) if rule else number
        found.append(DraftLine(rule) if first == number else DraftLine(problem=f"line {first} is about the same"))
    return found


def _rule(words: Sequence[str], now: float, written: Mapping[str, EgressRule], *, allow_ip: bool) -> EgressRule:
    if (rule := written.get(" ".join(words))) is not None:
        if rule.until is not None and rule.until <= now:
            raise ValueError(f"{words[-1]} is in the past")
        return rule
    effect = _EFFECTS.get(words[0].lower())
    rest = list(words if effect is None else words[1:])
    if not rest:
        raise ValueError(f"{words[0]} what? Write {words[0]} example.com")
    if effect is None and len(rest) > 1 and rest[1].lower() not in ("for", "until"):
        raise ValueError(f"{words[0]!r} is neither allow nor deny")
    hosts.parse(rest[0], allow_ip=allow_ip or effect is Effect.DENY)
    return EgressRule(rest[0], effect or Effect.ALLOW, _until(rest[1:], now), LIVE)


def _until(words: Sequence[str], now: float) -> float | None:
    match [word.lower() for word in words]:
        case []:
            return None
        case ["for", duration]:
            seconds = quantities.parse_duration_s(duration)
            if seconds <= 0:
                raise ValueError(f"for {duration} is not above 0")
            return now + seconds
        case ["until", moment]:
            return _then(moment, now)
        case ["for"]:
            raise ValueError("for how long? Write 90s, 15m, 2h or 1d")
        case ["until"]:
            raise ValueError("until when? Write 14:30 or 2031-01-31T14:30")
    raise ValueError(f"{' '.join(words)!r} is not understood after the pattern; write for 1h, or until 14:30")


def _then(text: str, now: float) -> float:
    """The next occurrence of a time of day, or a date with a time; both are local."""
    today = datetime.fromtimestamp(now).astimezone()
    try:
        if "-" not in text:
            then = datetime.combine(today.date(), time.fromisoformat(text)).astimezone()
            then = then if then > today else datetime.combine(today.date() + _DAY, then.time()).astimezone()
        else:
            then = datetime.fromisoformat(text.upper()).astimezone()
        until = then.timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not a time; write 14:30 or 2031-01-31T14:30") from None
    if until <= now:
        raise ValueError(f"{text} is in the past")
    return until


def change_to(ref: SandboxRef, rules: Sequence[EgressRule], draft: Sequence[EgressRule]) -> ChangeEgress | None:
    """The action that replaces the rules by a draft; None if nothing differs.

    Rules that differ only in their source are left as they are.
    """
    before, after = _by_pattern(rules), _by_pattern(draft)
    differing = [key for key in {**before, **after} if _terms(before.get(key)) != _terms(after.get(key))]
    remove = tuple(before[key][0].pattern for key in differing if key in before)
    # An added allow rule replaces a deny rule but not the other way round, so deny rules come last.
    add = [rule for key in differing for rule in sorted(after.get(key, ()), key=lambda one: one.effect is Effect.DENY)]
    return ChangeEgress(ref, tuple(add), remove) if differing else None


def _by_pattern(rules: Iterable[EgressRule]) -> dict[hosts.HostPattern | str, list[EgressRule]]:
    found: dict[hosts.HostPattern | str, list[EgressRule]] = {}
    for rule in rules:
        found.setdefault(key_of(rule.pattern), []).append(rule)
    return found


def _terms(rules: Iterable[EgressRule] | None) -> set[tuple[Effect, float | None]]:
    return {(rule.effect, rule.until) for rule in rules or ()}
