"""Why a sandbox ended: a verdict from the record, and "unknown" where evidence is missing."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, structs

from sandbox_console.model.audit import AuditEntry, Outcome
from sandbox_console.model.sandbox import Exit, Sandbox, Status

_NEAR_S = 15.0
"""An action that ended a sandbox began at most its grace, about ten seconds, before the end."""
_ENDING = ("stop", "kill", "restart", "remove", "update")
_KILL, _TERM = 9, 15


class Verdict(Struct, frozen=True):
    """One line first, then what it rests on. ``sure`` is off where the evidence does not settle it."""

    headline: str
    evidence: tuple[str, ...] = ()
    sure: bool = True


def verdict(sandbox: Sandbox, entries: Sequence[AuditEntry]) -> Verdict | None:
    """Why a sandbox is not running; None while it is, or before it ever was. Texts in it are not cleaned."""
    if sandbox.status not in (Status.EXITED, Status.FAILED, Status.LOST):
        return None
    found = _found(sandbox, entries)
    reason = sandbox.exit.reason if sandbox.exit else ""
    if reason and reason.casefold() in found.headline.casefold():
        return structs.replace(found, evidence=tuple(text for text in found.evidence if text != reason))
    return found


def _found(sandbox: Sandbox, entries: Sequence[AuditEntry]) -> Verdict:
    evidence = tuple(_evidence(sandbox))
    if sandbox.status is Status.LOST:
        return Verdict(
            f"lost: {sandbox.detail or 'its end was not seen, so its cause is unknown'}", evidence, sure=False
        )
    if sandbox.status is Status.FAILED:
        reason = sandbox.detail or (sandbox.exit.reason if sandbox.exit else "")
        return Verdict(f"it never ran: {reason or 'unknown why'}", evidence, sure=bool(reason))
    end = sandbox.exit or Exit()
    killer = _killer(sandbox, entries)
    if killer is not None:
        evidence = (*evidence, _row(killer))
    return _judged(sandbox, end, killer, evidence)


def _judged(sandbox: Sandbox, end: Exit, killer: AuditEntry | None, evidence: tuple[str, ...]) -> Verdict:
    if end.oom:
        return Verdict("out of memory: the kernel killed it at its limit", evidence)
    if limit := _time_limit(sandbox, end):
        return Verdict(limit, evidence)
    if killer is not None:
        attempt = killer.attempt
        return Verdict(f"{_DID.get(attempt.action, attempt.action)} by {attempt.actor}", evidence)
    number = end.signal or (end.code - 128 if end.code is not None and 128 < end.code < 160 else None)
    if number is not None:
        return _by_signal(number, end, evidence)
    if end.code is None:
        return Verdict("unknown: the backend tells no exit code", evidence, sure=False)
    if end.code == 0:
        return Verdict("it finished: exit 0", evidence)
    return Verdict(f"its command failed: exit {end.code}{_MEANING.get(end.code, '')}", evidence)


_DID = {"stop": "stopped", "kill": "killed", "restart": "stopped for a restart", "remove": "removed",
        "update": "stopped to be recreated"}  # fmt: skip
_MEANING = {126: ", found but not executable", 127: ", command not found"}


def _by_signal(number: int, end: Exit, evidence: tuple[str, ...]) -> Verdict:
    name = _name(number)
    if number == _KILL:
        memory = "not out of memory" if end.oom is False else "whether out of memory cannot be known here"
        return Verdict(f"killed by {name}, unknown by whom; {memory}", evidence, sure=False)
    if number == _TERM:
        return Verdict(f"ended by {name}, unknown by whom", evidence, sure=False)
    return Verdict(f"crashed: {name}", evidence)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _time_limit(sandbox: Sandbox, end: Exit) -> str:
    """A time limit, where the backend says so itself."""
    reason = end.reason.lower()
    spec = sandbox.spec
    if "idle" in reason:
        limit = f" of {spec.idle_timeout_s:g} s" if spec and spec.idle_timeout_s else ""
        return f"idle for longer than its limit{limit}"
    if any(word in reason for word in ("duration", "time limit", "timed out", "ran longer", "max_duration")):
        limit = f" of {spec.max_duration_s:g} s" if spec and spec.max_duration_s else ""
        return f"it ran longer than its limit{limit}"
    return ""


def _killer(sandbox: Sandbox, entries: Sequence[AuditEntry]) -> AuditEntry | None:
    """The action of this console that ended it: an attempt that was let through, right before the end."""
    if sandbox.finished_at is None:
        return None
    for entry in sorted(entries, key=lambda one: -one.attempt.at_ns):
        at = entry.attempt.at_ns / 1e9
        let = entry.outcome not in (Outcome.DENIED, Outcome.UNSUPPORTED)
        took_s = (entry.end.dur_us or 0) / 1e6 if entry.end else 0.0
        if entry.attempt.action in _ENDING and let and at - 1 <= sandbox.finished_at <= at + max(took_s, _NEAR_S):
            return entry
    return None


def _evidence(sandbox: Sandbox) -> list[str]:
    end = sandbox.exit
    if end is None:
        return ["no exit is told"]
    found = [f"exit {'unknown' if end.code is None else end.code}"]
    found.append(f"signal {_name(end.signal)}" if end.signal else "no signal told")
    found.append({True: "out of memory: yes", False: "out of memory: no", None: "out of memory: unknown"}[end.oom])
    if end.reason and not any(end.reason.casefold() in text.casefold() for text in found):
        found.append(end.reason)
    if sandbox.finished_at is not None:
        found.append(f"ended {datetime.fromtimestamp(sandbox.finished_at).astimezone():%Y-%m-%d %H:%M:%S}")
    return found


def _row(entry: AuditEntry) -> str:
    return f"audit row {entry.attempt.seq}: {entry.attempt.action} by {entry.attempt.actor}"
