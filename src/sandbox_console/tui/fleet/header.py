"""The header: product, counts, audit state, backends, and a banner for problems."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter

from rich.cells import cell_len, set_cell_size
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from sandbox_console.model.alert import Alert
from sandbox_console.model.event import ConfigChanged
from sandbox_console.model.sandbox import BackendHealth, HealthState, Status
from sandbox_console.model.text import clean
from sandbox_console.tui.base.static_text import set_text
from sandbox_console.tui.fleet.arrangement import Hidden, ListOptions
from sandbox_console.tui.fleet.groups import LABEL
from sandbox_console.tui.keys.keymap import key_of
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.formatting import HEALTH, LOCAL, STATUS, STYLES

Part = tuple[str, str]
_COUNTED = (
    Status.RUNNING, Status.FAILED, Status.LOST, Status.PAUSED, Status.UNKNOWN, Status.STARTING, Status.STOPPING,
    Status.CREATED, Status.EXITED,
)  # fmt: skip
"""Problems come first, as a narrow line leaves out its end."""
_REASON = 60
_MANY = 4
"""A backend with this many hosts is shown by how many answer."""
_NAMED = 8
"""How many silent hosts are named on one line."""
_LINES = 4
_WORTH = 8
"""The fewest cells in which the beginning of a text is useful."""


class HeaderBar(Vertical):
    """Shows facts about the whole fleet."""

    DEFAULT_CSS = """
    HeaderBar { height: auto; background: $panel; }
    HeaderBar > Static { height: auto; padding: 0 1; }
    HeaderBar > #top { height: 1; }
    HeaderBar > #backends { height: 1; text-wrap: nowrap; text-overflow: ellipsis; color: $text-muted; }
    HeaderBar > #view { height: 1; text-wrap: nowrap; text-overflow: ellipsis; display: none; }
    HeaderBar > #audit-banner { background: $error; color: $background; text-style: bold; display: none; }
    HeaderBar > #config-banner { background: $warning; color: $background; display: none; max-height: 3; }
    HeaderBar > #dead-banner { background: $error 20%; color: $text-error; display: none; max-height: 4; }
    HeaderBar > .-on { display: block !important; }
    """

    def compose(self) -> ComposeResult:
        yield Static(id="top")
        yield Static(id="backends")
        yield Static(id="view")
        yield Static(id="audit-banner")
        yield Static(id="config-banner")
        yield Static(id="dead-banner")

    def show(self, state: FleetState, *, read_only: bool, width: int) -> None:
        """Show a state."""
        set_text(self.query_one("#top", Static), top_line(state, read_only=read_only, width=width - 2), fixed=True)
        key = key_of(self, "backends")
        set_text(self.query_one("#backends", Static), backends_line(state.health.values(), width - 2, key), fixed=True)
        self._banner("#audit-banner", audit_banner(state.audit_problem))
        self._banner("#config-banner", config_banner(state.config))
        self._banner("#dead-banner", dead_banner(state.dead))

    def show_view(self, options: ListOptions, hidden: Hidden, total: int, name: str, *, typing: bool = False) -> None:
        """Show which part of the fleet is listed. While a filter is typed the line stays, so that keys move nothing."""
        view = view_line(options, hidden, total, name)
        self._banner("#view", view if view.plain or not typing else Content(f"{total} of {total}"))

    def on_click(self) -> None:
        self.app.run_worker(self.app.run_action("backends"))

    def _banner(self, selector: str, content: Content) -> None:
        banner = self.query_one(selector, Static)
        banner.set_class(bool(content.plain), "-on")
        set_text(banner, content, fixed=selector == "#view")


def top_line(state: FleetState, *, read_only: bool, width: int) -> Content:
    """Return the product and counts on the left, and what applies to every change on the right."""
    left: list[Part] = [("sandbox-console", "bold $primary"), ("   ", ""), *counts(state)]
    right: list[Part] = [(" READ-ONLY ", "bold $background on $warning"), ("  ", "")] if read_only else []
    glyph, word, style = ("✕", "unwritable", "error") if state.audit_problem else ("●", "ok", "ok")
    right = [*alert_words(state.alerts.firing), *right]
    right += [("audit ", "$dim"), (f"{glyph} {word}", STYLES[style])]
    if state.missed:
        right.insert(0, (f"{state.missed} events missed  ", "$text-warning"))
    return Content.assemble(*justified(left, right, width))


def alert_words(firing: Sequence[Alert]) -> list[Part]:
    """Return how many alerts fire. Silenced ones count only if there are no others."""
    loud = [alert for alert in firing if not alert.silenced]
    if not firing:
        return []
    if not loud:
        return [(f"{len(firing)} silenced  ", "$dim")]
    style = STYLES["error" if any(alert.severity == "critical" for alert in loud) else "warn"]
    return [(f"! {len(loud)} {'alert' if len(loud) == 1 else 'alerts'}  ", f"bold {style}")]


def view_line(options: ListOptions, hidden: Hidden, total: int, name: str = "") -> Content:
    """Return how many are shown, how many are hidden and by what, and the grouping. Empty if everything is shown."""
    parts: list[Part] = [("view ", "$dim"), (f"{clean(name, cap=40)}   ", "bold")] if name else []
    causes = (
        (options.shown, hidden.filtered, "by the filter"),
        (options.faults, hidden.healthy, "by faults only"),
        (options.managed, hidden.others, "by ours only"),
    )
    if any(on for on, _, _ in causes):
        reasons = ", ".join(f"{count} {by}" for _, count, by in causes if count)
        idle = ", ".join(by.removeprefix("by ") for on, count, by in causes if on and not count)
        parts.append((f"{total - hidden.total} of {total}   ", "bold"))
        parts += [("hidden: ", "$dim"), (f"{reasons}   ", "$text-warning")] if reasons else []
        parts += [(f"{idle}: {'no more hidden' if reasons else 'nothing hidden'}   ", "$dim")] if idle and total else []
    if options.group:
        parts += [("groups: ", "$dim"), (clean(options.group.replace(LABEL, "label "), cap=60), "")]
    return Content.assemble(*parts)


def counts(state: FleetState) -> list[Part]:
    """Return how many sandboxes are in each state that occurs. ``stale`` are those whose backend does not answer."""
    heard, stale = state.heard_of
    found = list(map(attrgetter("status"), heard))
    parts: list[Part] = []
    for status in _COUNTED:
        if count := found.count(status):  # 0.1 ms for 10,000: hashing them takes 5
            glyph, style = STATUS[status]
            parts += [(f"{glyph} {count} {status}", STYLES[style]), ("  ", "")]
    if stale:
        parts = [(f"? {stale} stale", STYLES["warn"]), ("  ", ""), *parts]
    if not parts and not any(health.ok for health in state.health.values()):
        return [("connecting…", "$dim")] if state.connecting else [("what runs is not known", STYLES["error"])]
    return parts or [("connecting…" if state.connecting else "no sandboxes", "$dim")]


def justified(left: list[Part], right: list[Part], width: int) -> list[Part]:
    """Return the left parts, a gap, and the right parts at the end. The left ones are cut if there is no room."""
    room = width - _cells(right) - 1
    while left and not left[-1][0].strip():
        left = left[:-1]
    kept = left if _cells(left) <= room else _cut(left, room)
    return [*kept, (" " * max(1, room + 1 - _cells(kept)), ""), *right]


def _cut(parts: list[Part], room: int) -> list[Part]:
    """Return as many parts as fit, and ``…``."""
    kept: list[Part] = []
    left = room - 1
    for text, style in parts:
        if cell_len(text) > left:
            kept.append((set_cell_size(text, max(0, left)).rstrip() if left >= _WORTH else "", style))
            break
        kept.append((text, style))
        left -= cell_len(text)
    return [*kept, ("…", "$dim")]


def backends_line(backends: Iterable[BackendHealth], width: int = 10_000, key: str = "b") -> Content:
    """Return every backend with its health, those that answer first. If reasons are cut, add the key that shows all."""
    found = list(backends)
    many = {name for name, count in Counter(one.backend for one in found).items() if count >= _MANY}
    parts: list[Part] = []
    whole = True
    for name in sorted(many):
        parts += [*_answering([one for one in found if one.backend == name]), ("   ", "")]
    for health in sorted(
        (one for one in found if one.backend not in many),
        key=lambda backend_health: not backend_health.ok and backend_health.state is not HealthState.CONNECTING,
    ):
        glyph, style = HEALTH[health.state]
        parts += [(f"{glyph} ", STYLES[style]), (backend_name(health), "$foreground")]
        parts.append((f" {health.state}", STYLES[style]))
        if health.state is HealthState.UNAVAILABLE and health.reason:
            reason = clean(health.reason)
            whole = whole and len(reason) <= _REASON
            parts.append((f": {reason if len(reason) <= _REASON else f'{reason[: _REASON - 1].rstrip()}…'}", "$dim"))
        parts.append(("   ", ""))
    if not parts:
        return Content.styled("looking for backends…", "$dim")
    del parts[-1]
    if whole and _cells(parts) <= width:
        return Content.assemble(*parts)
    more: list[Part] = [("   ", ""), (key, "bold $primary"), (" for details", "$dim")] if key else []
    return Content.assemble(
        *(justified(parts, more[1:], width) if _cells([*parts, *more]) > width else [*parts, *more])
    )


def _answering(hosts: Sequence[BackendHealth]) -> list[Part]:
    """Return how many hosts of a backend answer, with the sign of those that are worst off."""
    states = {one.state for one in hosts}
    worst = next(state for state in (HealthState.UNREACHABLE, *HealthState) if state in states)
    glyph, style = HEALTH[worst]
    ok = sum(one.ok for one in hosts)
    text = f" {ok} of {len(hosts)} answer" if ok < len(hosts) else f" {ok} hosts ok"
    return [(f"{glyph} ", STYLES[style]), (clean(hosts[0].backend), "$foreground"), (text, STYLES[style])]


def _cells(parts: list[Part]) -> int:
    return sum(cell_len(text) for text, _ in parts)


def backend_name(health: BackendHealth) -> str:
    """Return the backend, with its host if that is not this machine."""
    return clean(health.backend if health.host in LOCAL else f"{health.backend}@{health.host}")


def audit_banner(problem: str) -> Content:
    """Return the consequences of an audit log that cannot be written."""
    if not problem:
        return Content("")
    return Content(f"AUDIT LOG UNWRITABLE  {clean(problem, cap=500)}. Nothing can be changed; lists and logs go on.")


def config_banner(config: ConfigChanged) -> Content:
    """Return what is wrong with a changed configuration, which is not used."""
    if not config.problem:
        return Content("")
    hint = f" ({clean(config.hint, cap=200)})" if config.hint else ""
    return Content(f"CONFIGURATION NOT USED  {clean(config.problem, cap=400)}{hint}. The previous one stays in force.")


def dead_banner(dead: list[BackendHealth]) -> Content:
    """Return each backend that should answer but does not, with the reason and what to do.

    Many hosts of one backend are on one line for each reason.
    """
    if len(dead) < _MANY:
        return Content("\n".join(dead_line(health) for health in dead))
    reasons = dict.fromkeys((health.backend, health.reason) for health in dead)
    lines = [_dead_hosts([one for one in dead if (one.backend, one.reason) == reason]) for reason in reasons]
    if len(lines) > _LINES:
        lines[_LINES - 1 :] = [f"✕ {len(lines) - _LINES + 1} other reasons"]
    return Content("\n".join(lines))


def _dead_hosts(dead: Sequence[BackendHealth]) -> str:
    """Return one line about the hosts of a backend that do not answer for the same reason."""
    if len(dead) == 1:
        return dead_line(dead[0])
    names = ", ".join(clean(one.host, cap=40) for one in dead[:_NAMED])
    more = f" and {len(dead) - _NAMED} more" if len(dead) > _NAMED else ""
    since = _since(min((one.since for one in dead if one.since), default=0.0))
    reason = clean(dead[0].reason, cap=200) or "no reason given"
    return f"✕ {len(dead)} hosts of {clean(dead[0].backend)}{since}: {reason}: {names}{more}"


def _since(at: float) -> str:
    """Return since when a backend does not answer, in local time."""
    return time.strftime(" since %H:%M:%S", time.localtime(at)) if at else ""


def dead_line(health: BackendHealth) -> str:
    """Return one line about a dead backend."""
    hint = f" ({clean(health.hint, cap=300)})" if health.hint else ""
    reason = clean(health.reason, cap=300) or "no reason given"
    return f"✕ {backend_name(health)} {health.state}: {reason}{hint}{_since(health.since)}"
