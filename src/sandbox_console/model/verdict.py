"""Why a sandbox ended: a verdict from the evidence, or "unknown" if evidence is missing."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, structs

from sandbox_console.model.audit import AuditEntry, Outcome
from sandbox_console.model.guest import GuestEvent
from sandbox_console.model.sandbox import Exit, Sandbox, Status

_NEAR_S = 15.0
"""Seconds. An action that ended a sandbox began at most its grace period, about ten seconds, before the end."""
_ENDING = ("stop", "kill", "restart", "remove", "update")
_STARTING = ("create", "start", "restart", "update", "restore", "fork")
_KILL, _TERM = 9, 15
_FAILED = "its command failed"


class Verdict(Struct, frozen=True):
    """A verdict in one line, then the evidence. ``sure`` is False if the evidence is not conclusive."""

    headline: str
    evidence: tuple[str, ...] = ()
    sure: bool = True


def verdict(
    sandbox: Sandbox, entries: Sequence[AuditEntry], guest_events: Sequence[GuestEvent] = (), last_words: str = ""
) -> Verdict | None:
    """Why a sandbox is not running, or does not stay so; None while it is, or before it was to be started.

    ``guest_events`` are the backend's events, oldest first; ``last_words`` is the end of its output.
    """
    if sandbox.status is Status.STARTING and sandbox.restarts:
        return _restarting(sandbox.restarts, guest_events)
    if sandbox.status is Status.CREATED:
        return _not_started(entries)
    if sandbox.status not in (Status.EXITED, Status.FAILED, Status.LOST):
        return None
    found = _hinted(
        _without_gateway(_found(sandbox, entries, guest_events), sandbox, guest_events), sandbox, last_words
    )
    reason = sandbox.exit.reason if sandbox.exit else ""
    if reason and reason.casefold() in found.headline.casefold():
        return structs.replace(found, evidence=tuple(text for text in found.evidence if text != reason))
    return found


def _restarting(count: int, guest_events: Sequence[GuestEvent]) -> Verdict:
    """A loop of restarts, with how it ended the last time."""
    died = next((event for event in reversed(guest_events) if event.what == "die"), None)
    code = died.attributes.get("exitCode", "") if died else ""
    last = f", the last time with exit {code}" if code else ""
    seen = (f"event die {_time(died.at)}",) if died else ()
    return Verdict(f"it ended and was started again {count} times{last}", (f"restarts: {count}", *seen))


def _not_started(entries: Sequence[AuditEntry]) -> Verdict | None:
    """A start that failed, which an engine may not remember; None if it was never started."""
    starts = [entry for entry in entries if entry.attempt.action in _STARTING]
    last = max(starts, key=lambda entry: entry.attempt.at_ns, default=None)
    if last is None or last.end is None or last.outcome != Outcome.FAILED:
        return None
    return Verdict(f"it never ran: {last.end.body.get('error') or 'unknown why'}", (_row(last),))


def _found(sandbox: Sandbox, entries: Sequence[AuditEntry], guest_events: Sequence[GuestEvent]) -> Verdict:
    evidence = tuple(_evidence(sandbox))
    if sandbox.status is Status.LOST:
        return Verdict(
            f"lost: {sandbox.detail or 'its end was not seen, so its cause is unknown'}", evidence, sure=False
        )
    if sandbox.status is Status.FAILED:
        reason = sandbox.detail or (sandbox.exit.reason if sandbox.exit else "")
        return Verdict(f"it never ran: {reason or 'unknown why'}", evidence, sure=bool(reason))
    end = sandbox.exit or Exit()
    killer = ended_by(sandbox, entries)
    if killer is not None:
        evidence = (*evidence, _row(killer))
    return _judged(sandbox, end, killer, guest_events, evidence)


def _judged(
    sandbox: Sandbox,
    end: Exit,
    killer: AuditEntry | None,
    guest_events: Sequence[GuestEvent],
    evidence: tuple[str, ...],
) -> Verdict:
    if end.oom and (end.signal == _KILL or end.code is None):
        seen = _oom_seen(sandbox, guest_events)
        return Verdict("out of memory: the kernel killed it at its limit", (*evidence, *seen))
    if limit := _time_limit(sandbox, end):
        return Verdict(limit, evidence)
    if killer is not None:
        attempt = killer.attempt
        return Verdict(f"{_DID.get(attempt.action, attempt.action)} by {attempt.actor}", evidence)
    number = end.signal or (end.code - 128 if end.code is not None and 128 < end.code < 160 else None)
    if restarted := _with_its_host(sandbox, end, guest_events):
        return structs.replace(restarted, evidence=(*evidence, *restarted.evidence))
    if sent := _by_another_client(sandbox, number, guest_events):
        return structs.replace(sent, evidence=(*evidence, *sent.evidence))
    own = end.signal is None and end.code in (128 + _KILL, 128 + _TERM) and _without_signal(sandbox, guest_events)
    return _by_itself(end, number, _oom_seen(sandbox, guest_events), evidence, own=own)


def _without_signal(sandbox: Sandbox, guest_events: Sequence[GuestEvent]) -> bool:
    """Whether the backend says that no signal ended it, and not only that the code is above 128."""
    died = [event for event in guest_events if event.what == "die" and _this_run(sandbox, event.at)]
    return bool(died) and died[-1].attributes.get("signal") == ""


def _by_itself(
    end: Exit, number: int | None, seen: tuple[str, ...], evidence: tuple[str, ...], *, own: bool
) -> Verdict:  # fmt: skip
    """The end of a command that nobody is known to have ended.

    ``seen`` is the event of a child out of memory. ``own`` is whether a code above 128 is one that it chose itself.
    """
    if end.code and (own or number is None) and (end.oom or seen):
        return Verdict(f"{_FAILED}: exit {end.code}, after the kernel killed a process of it at its memory limit",
                       (*evidence, *seen))  # fmt: skip
    if own:
        return Verdict(f"{_FAILED}: exit {end.code}, its own code: no signal ended it", evidence)
    if number is not None:
        return _by_signal(number, end, evidence)
    if end.code is None:
        return Verdict("unknown: the backend reports no exit code", evidence, sure=False)
    if end.code == 0:
        return Verdict("it finished: exit 0", evidence)
    return Verdict(f"{_FAILED}: exit {end.code}{_MEANING.get(end.code, '')}", evidence)


def _oom_seen(sandbox: Sandbox, guest_events: Sequence[GuestEvent]) -> tuple[str, ...]:
    for event in reversed(guest_events):
        if event.what == "oom" and _this_run(sandbox, event.at):
            limits = "".join(f", {key} {value}" for key, value in sorted(event.attributes.items()) if key in _OOM_TOLD)
            return (f"event oom {_time(event.at)}{limits}",)
    return ()


_OOM_TOLD = ("peak", "limit", "kills")


def _with_its_host(sandbox: Sandbox, end: Exit, guest_events: Sequence[GuestEvent]) -> Verdict | None:
    """An end with the engine or the machine: by a signal that nobody is known to have sent, right before its start."""
    at = sandbox.finished_at
    if at is None or end.code not in _SWEPT_AWAY:
        return None
    for what, text in _STARTS.items():
        for event in guest_events:
            if event.what == what and event.at - _STOPPING_S <= at <= event.at + _STARTING_S:
                return Verdict(text, (f"it began again {_time(event.at)}",))
    return None


_STARTS = {
    "machine_start": "it ended with its machine, which was restarted",
    "engine_start": "it ended with its engine, which was stopped or restarted",
}
_SWEPT_AWAY = (128 + _KILL, 128 + _TERM, 255)
"""How an engine that stops ends its containers; 255 is what it says of those that it finds dead when it starts."""
_STOPPING_S, _STARTING_S = 90.0, 60.0


_DID = {"stop": "stopped", "kill": "killed", "restart": "stopped for a restart", "remove": "removed",
        "update": "stopped to be recreated"}  # fmt: skip
_MEANING = {126: ", found but not executable", 127: ", command not found"}


def _by_another_client(sandbox: Sandbox, number: int | None, guest_events: Sequence[GuestEvent]) -> Verdict | None:
    """A signal that the backend sent but this console did not, as ``docker kill`` or ``docker stop`` send it."""
    at = sandbox.finished_at
    for event in reversed(guest_events):
        if event.what != "kill" or at is None or not at - _NEAR_S <= event.at <= at + 1:
            continue
        word = event.attributes.get("signal", "")
        sent = int(word) if word.isdecimal() else 0
        if number in (None, sent) or sent == _TERM:
            text = f"sent {_name(sent)} through its backend by another client, not by this console"
            return Verdict(text, (f"event kill {_time(event.at)}",))
    return None


def _this_run(sandbox: Sandbox, at: float) -> bool:
    begin, end = sandbox.started_at, sandbox.finished_at
    return (begin is None or at >= begin - 1) and (end is None or at <= end + 1)


def _without_gateway(verdict: Verdict, sandbox: Sandbox, guest_events: Sequence[GuestEvent]) -> Verdict:
    """The end of a command that failed by itself while its egress gateway was gone, and with it its way out."""
    if not verdict.headline.startswith(_FAILED):
        return verdict
    mine = [event for event in guest_events if event.what in _GATEWAY and _this_run(sandbox, event.at)]
    gone = next((event for event in reversed(mine) if event.what in _GATEWAY_GONE), None)
    if gone is None or (mine[-1].what == "gateway_start" and (sandbox.finished_at or 0.0) - mine[-1].at > _NEAR_S):
        return verdict
    seen = f"event {gone.what} {_time(gone.at)}"
    return structs.replace(
        verdict, headline=f"{verdict.headline}, after its egress gateway ended", evidence=(*verdict.evidence, seen)
    )


_GATEWAY_GONE = ("gateway_die", "gateway_end")
_GATEWAY = (*_GATEWAY_GONE, "gateway_start")
_HINTS = (
    (r"(?:create|creating|mkdir|touch|open)[^\n]{0,300}: No space left on device",
     "its limit of files (inodes) was used up"),
    (r"No space left on device|ENOSPC", "its disk, or its limit of bytes, was full"),
    (r"Disk quota exceeded|EDQUOT", "a disk quota was used up"),
    (r"Cannot allocate memory|MemoryError|JavaScript heap out of memory|OutOfMemoryError|out of memory",
     "it asked for more memory than it may have"),
    (r"can't fork|Cannot fork|fork: retry|Resource temporarily unavailable|can't start new thread",
     "it reached its limit of processes"),
    (r"Too many open files|EMFILE", "it reached its limit of open files"),
    (r"Read-only file system|EROFS", "it wrote to a read-only place"),
    (r"Could not resolve host|Name or service not known|Temporary failure in name resolution|ENOTFOUND|EAI_AGAIN",
     "it could not resolve a name"),
    (r"Exec format error", "its program is for another kind of machine"),
)  # fmt: skip
"""Messages of the C library and of common runtimes, and what they mean. A guest can also write them on purpose."""


def _hinted(verdict: Verdict, sandbox: Sandbox, last_words: str) -> Verdict:
    """What the last lines of output suggest, if the command failed by itself."""
    if sandbox.exit is None or sandbox.exit.code in (None, 0) or not verdict.headline.startswith(_FAILED):
        return verdict
    for pattern, meaning in _HINTS:
        if match := re.search(pattern, last_words, re.IGNORECASE):
            return structs.replace(
                verdict,
                headline=f"{verdict.headline}; probably {meaning}",
                evidence=(*verdict.evidence, f"it wrote {match[0]!r}"),
            )
    return verdict


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


# Compare whole texts: a reason may come from an engine and contain names that an image or a guest chose ("/bin/idle:
# not found").
_IDLED = re.compile(r"(its )?idle(_timeout(_s)?)?( ran out)?", re.IGNORECASE)
_LASTED = re.compile(r"(its )?max_duration(_s)? ran out|it ran longer than its max_duration(_s)?", re.IGNORECASE)


def _time_limit(sandbox: Sandbox, end: Exit) -> str:
    """The time limit, if the backend itself says that it ended the sandbox."""
    spec = sandbox.spec
    if _IDLED.fullmatch(end.reason):
        limit = f" of {spec.idle_timeout_s:g} s" if spec and spec.idle_timeout_s else ""
        return f"idle for longer than its limit{limit}"
    if _LASTED.fullmatch(end.reason):
        limit = f" of {spec.max_duration_s:g} s" if spec and spec.max_duration_s else ""
        return f"it ran longer than its limit{limit}"
    return ""


def ended_by(sandbox: Sandbox, entries: Sequence[AuditEntry]) -> AuditEntry | None:
    """The action of a console that ended its last run: an attempt that was allowed, right before the end."""
    if sandbox.finished_at is None:
        return None
    for entry in sorted(filter(_can_end, entries), key=lambda one: -one.attempt.at_ns):
        at = entry.attempt.at_ns / 1e9
        if sandbox.started_at is not None and at < sandbox.started_at <= sandbox.finished_at:
            return None
        let = entry.outcome not in (Outcome.DENIED, Outcome.UNSUPPORTED)
        took_s = (entry.end.dur_us or 0) / 1e6 if entry.end else 0.0
        if let and at - 1 <= sandbox.finished_at <= at + max(took_s, _NEAR_S):
            return entry
    return None


def _can_end(entry: AuditEntry) -> bool:
    """Whether it is an action that ends a sandbox; an update does so only if it recreates."""
    live = entry.end is not None and entry.end.body.get("how", "recreate") != "recreate"
    return entry.attempt.action in _ENDING and not live


def _evidence(sandbox: Sandbox) -> list[str]:
    end = sandbox.exit
    if end is None:
        return ["no exit was reported"]
    found = [f"exit {'unknown' if end.code is None else end.code}"]
    found.append(f"signal {_name(end.signal)}" if end.signal else "no signal was reported")
    found.append({True: "out of memory: yes", False: "out of memory: no", None: "out of memory: unknown"}[end.oom])
    if end.reason and not any(end.reason.casefold() in text.casefold() for text in found):
        found.append(end.reason)
    if sandbox.finished_at is not None:
        found.append(f"ended {_time(sandbox.finished_at)}")
    return found


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M:%S}"


def _row(entry: AuditEntry) -> str:
    return f"audit row {entry.attempt.seq}: {entry.attempt.action} by {entry.attempt.actor}"
