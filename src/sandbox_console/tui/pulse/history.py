"""Figures about the fleet: totals now and over time. Pure."""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import Sequence

from msgspec import Struct
from textual.content import Content

from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.text import clean
from sandbox_console.service import Feed
from sandbox_console.tui.fleet.header import backend_name
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.formatting import DASH, HEALTH, STATUS, STYLES, many, shown_name, span

KEPT = 1800
"""Totals that are kept: one every two seconds for an hour."""
PAST_S = 3600.0
"""Seconds back to which denials are counted."""
_BAR = 20
Part = tuple[str, str]


class Total(Struct, frozen=True):
    """Sums over the running sandboxes that were measured, or None if none was."""

    cpu_percent: float | None
    memory_bytes: float | None
    measured: int
    running: int


def total(state: FleetState) -> Total:
    """Return the current sums. Sandboxes that are not on screen are measured every half minute."""
    stats = [one for ref, one in state.stats.items() if ref in state.sandboxes]
    running = sum(one.status is Status.RUNNING for one in state.sandboxes.values())
    cpu = [one.cpu_percent for one in stats if one.cpu_percent is not None]
    memory = [one.memory_bytes for one in stats if one.memory_bytes is not None]
    return Total(_sum(cpu), _sum(memory), len(stats), running)


def _sum(known: Sequence[float]) -> float | None:
    return float(sum(known)) if known else None


class History:
    """Totals over time."""

    def __init__(self) -> None:
        self.totals: deque[Total] = deque(maxlen=KEPT)

    def note(self, state: FleetState) -> None:
        """Add the current totals."""
        self.totals.append(total(state))


def state_words(state: FleetState, width: int, makes: str = "") -> Content:
    """Return how many sandboxes are in each state, with bars. ``makes`` is the key that creates one."""
    found = Counter(sandbox.status for sandbox in state.sandboxes.values())
    everything = len(state.sandboxes)
    parts: list[Part] = [("States", "bold"), (f"  {many(everything)}\n", "$dim")]
    if not everything:
        none = f"There are none. Press {makes} on the list to make one." if makes else "There are none."
        words = "Waiting for the backends …" if state.connecting else none
        return Content.assemble(*parts, (words, "$dim"))
    room = max(1, min(_BAR, width - 22))
    for status, (glyph, style) in STATUS.items():
        if count := found[status]:
            bar = "█" * max(1, round(count / everything * room))
            parts += [(f"{glyph} {status:<9}", STYLES[style]), (f"{count:>6} ", "bold"), (f"{bar}\n", STYLES[style])]
    if stale := sum(state.stale(ref) for ref in state.sandboxes):
        parts.append((f"? {stale} as last known: their backend does not answer\n", "$text-warning"))
    return Content.assemble(*parts)


def backend_words(state: FleetState) -> Content:
    """Return for each backend whether it answers, with its number of sandboxes, or why it does not."""
    found = Counter((ref.backend, ref.host) for ref in state.sandboxes)
    parts: list[Part] = [("Backends\n", "bold")]
    for key, health in state.health.items():
        glyph, style = HEALTH[health.state]
        parts += [(f"{glyph} {health.state} ", STYLES[style]), (backend_name(health), "bold")]
        parts.append((f"  {found[key]} sandboxes\n", "$dim"))
        if health.reason:
            parts.append((f"  {clean(health.reason, cap=200)}\n", STYLES[style]))
    return Content.assemble(*parts)


def trouble_words(state: FleetState, feed: Feed, now: float, unread: int = 0) -> Content:
    """Return what to look at first: alerts, bad exits, out of memory, restarts, refused connections, failed actions.

    ``unread`` is the number of sandboxes whose refused connections cannot be read.
    """
    sandboxes, denials = list(state.sandboxes.values()), _denials(feed, now, unread)
    lines = [
        _alerts(state),
        _bad_ends(sandboxes),
        _ooms(sandboxes, now),
        _restarts(sandboxes),
        denials,
        _actions(state),
    ]
    parts: list[Part] = []
    for title, count, more in lines:
        style = "bold $text-warning" if count else "$dim"
        parts += [("\n" if parts else "", ""), (f"{title:<15}", ""), (f"{count:>5}", style), (f"  {more}", "$dim")]
    return Content.assemble(*parts)


Line = tuple[str, int, str]


def _alerts(state: FleetState) -> Line:
    firing = [alert for alert in state.alerts.firing if not alert.silenced]
    last = max(firing, key=lambda alert: alert.fired_at or alert.since, default=None)
    more = f"last: {clean(last.rule, cap=40)}: {clean(last.name, cap=60)}" if last else ""
    return "Alerts", len(firing), (state.alerts.problem and clean(state.alerts.problem, cap=200)) or more


def _restarts(sandboxes: list[Sandbox]) -> Line:
    restarted = [sandbox for sandbox in sandboxes if sandbox.restarts]
    if not restarted:
        return "Restarts", 0, ""
    busiest = max(restarted, key=lambda sandbox: sandbox.restarts or 0)
    return (
        "Restarts",
        sum(sandbox.restarts or 0 for sandbox in restarted),
        f"most: {shown_name(busiest)} {busiest.restarts}",
    )


def _ooms(sandboxes: list[Sandbox], now: float) -> Line:
    killed = [sandbox for sandbox in sandboxes if sandbox.exit is not None and sandbox.exit.oom]
    return "Out of memory", len(killed), _last(killed, now)


def _bad_ends(sandboxes: list[Sandbox]) -> Line:
    ended = [sandbox.exit for sandbox in sandboxes if sandbox.status is Status.EXITED and sandbox.exit is not None]
    codes = [end for end in ended if end.code and end.signal != signal.SIGTERM]  # how a user's stop ends it
    found = Counter(str(sandbox.status) for sandbox in sandboxes if sandbox.status in (Status.FAILED, Status.LOST))
    words = [f"{count} {status}" for status, count in found.items()]
    words += [f"{len(codes)} with an exit code"] if codes else []
    return "Ended badly", len(codes) + found.total(), ", ".join(words)


def _last(sandboxes: list[Sandbox], now: float) -> str:
    timed = [sandbox for sandbox in sandboxes if sandbox.finished_at is not None]
    if not timed:
        return ", ".join(shown_name(sandbox) for sandbox in sandboxes[:3])
    last = max(timed, key=lambda sandbox: sandbox.finished_at or 0)
    return f"last: {shown_name(last)} {span(now - (last.finished_at or 0))} ago"


def _denials(feed: Feed, now: float, unread: int) -> Line:
    denied = [host for host in feed.hosts(denied_only=True) if host.denied_at >= now - PAST_S]
    more = [f"that of {unread} cannot be read"] if unread else []
    if denied:
        last = max(denied, key=lambda host: host.denied_at)
        who = clean(next(iter(last.refs.values()), DASH), cap=40)
        ago = span(now - last.denied_at)
        more.insert(0, f"{len(denied)} hosts, last: {clean(last.host, cap=60)} from {who} {ago} ago")
    return "Egress denied", feed.denied_since(now - PAST_S), "; ".join(more)


def _actions(state: FleetState) -> Line:
    found = Counter(acted.outcome for acted in state.acted)
    bad = found.total() - found["ok"]
    return "Actions failed", bad, ", ".join(f"{count} {outcome}" for outcome, count in found.most_common())
