"""Whether the condition of a rule holds, from what is known of a sandbox or a backend. Pure."""

from __future__ import annotations

import signal
from collections.abc import Callable

from sandbox_console.model.audit import AuditEntry
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, Stats, Status
from sandbox_console.service.alert_options import ERROR, OOM, AlertRule
from sandbox_console.service.alerts.store import Hits

_MIB = float(1 << 20)


def state_text(rule: AlertRule, sandbox: Sandbox) -> str:
    """The rule's state that a sandbox is in, as text; empty if it is in none."""
    words = set(rule.states)
    end = None if sandbox.status.live else sandbox.exit
    if OOM in words and end is not None and end.oom:
        return "out of memory"
    if str(sandbox.status) in words and sandbox.status is not Status.EXITED:
        return ": ".join(filter(None, [str(sandbox.status), sandbox.detail]))
    if failed(sandbox) and ERROR in words:
        assert end is not None  # noqa: S101 - or it had not failed
        return f"ended by signal {end.signal}" if end.signal else f"ended with exit code {end.code}"
    if str(sandbox.status) in words:
        return str(sandbox.status) if end is None or end.code is None else f"exited with code {end.code}"
    return ""


def failed(sandbox: Sandbox) -> bool:
    """Whether it exited with a code other than 0 that SIGTERM does not explain, with which a person stops it."""
    end = sandbox.exit
    if sandbox.status is not Status.EXITED or end is None or not end.code:
        return False
    return end.signal != signal.SIGTERM and end.code != 128 + signal.SIGTERM


def metric_text(rule: AlertRule, stats: Stats) -> str:
    """The metric that is above the rule's threshold, as text; empty if it is not, or not known."""
    limit, share = rule.threshold
    value = _VALUES[rule.metric](stats)
    if value is not None and share:
        value = 100 * value / stats.memory_limit if stats.memory_limit else None
    if value is None or value < limit:
        return ""
    here, there = (_shown(one, rule.metric, share=share) for one in (value, limit))
    return f"{_NAMES[rule.metric]} {here}, at or above {there}"


def _sum(*values: float | None) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if known else None


_VALUES: dict[str, Callable[[Stats], float | None]] = {
    "cpu": lambda one: one.cpu_percent,
    "memory": lambda one: one.memory_bytes,
    "network": lambda one: _sum(one.net_rx, one.net_tx),
    "disk": lambda one: _sum(one.block_read, one.block_write),
    "log": lambda one: one.log_rate,
    "processes": lambda one: one.pids,
}
_NAMES = {
    "cpu": "CPU is", "memory": "memory is", "network": "network traffic is", "disk": "disk traffic is",
    "log": "its log grows by", "processes": "processes:",
}  # fmt: skip


def _shown(value: float, metric: str, *, share: bool) -> str:
    if metric == "cpu" or share:
        return f"{value:.0f} %"
    if metric == "processes":
        return f"{value:.0f}"
    text = f"{value / _MIB:.1f} MiB" if value >= _MIB else f"{value / 1024:.1f} KiB"
    return text if metric == "memory" else f"{text}/s"


def backend_text(rule: AlertRule, health: BackendHealth) -> str:
    """Why a backend does not answer; empty if it does, or if the rule is not about it."""
    names = (health.backend, f"{health.backend}/{health.host}")
    if rule.backends and not any(name in rule.backends for name in names):
        return ""
    return f"it does not answer: {health.reason}" if health.state is HealthState.UNREACHABLE else ""


def audit_text(rule: AlertRule, entry: AuditEntry) -> str:
    """An action that ended, in words, if the rule is about it; else empty."""
    row = entry.attempt
    if (rule.actions and row.action not in rule.actions) or (rule.actors and row.actor not in rule.actors):
        return ""
    if not entry.outcome or (rule.outcomes and entry.outcome not in rule.outcomes):
        return ""
    error = entry.end.body.get("error", "") if entry.end is not None else ""
    return f"{row.action} by {row.actor}: {entry.outcome}" + (f": {error}" if error else "")


def counted(hits: Hits, rule: AlertRule, at: float, now: float, name: str, text: str, times: int = 1) -> Hits:
    """The hits with another one at a time; ``now`` is when it was read.

    They are compared with each other and not with the clock, so that what happened while nobody watched counts.
    """
    kept = sorted((*hits.times, *([at] * min(times, rule.count))))[-rule.count :]
    full = len(kept) == rule.count and kept[-1] - kept[0] <= rule.within_s
    return Hits(tuple(kept), now if full else hits.held_at, name, text)


def hits_text(hits: Hits, rule: AlertRule, now: float) -> str:
    """What happened, if it happened often enough and the last time was not long ago; else empty."""
    if hits.held_at is None or now - hits.held_at >= rule.within_s:
        return ""
    return hits.text if rule.count == 1 else f"{rule.count} times within {rule.within}: {hits.text}"


def over(hits: Hits, rule: AlertRule, now: float) -> bool:
    """Whether hits are too old to matter."""
    newest = max(hits.times[-1:] + ((hits.held_at,) if hits.held_at else ()), default=0.0)
    return now - newest >= rule.within_s
