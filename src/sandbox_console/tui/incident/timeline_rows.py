"""A timeline as rows: what is shown of it, the axis above the rows, and the times in which nothing happened. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

from msgspec import Struct
from textual.content import Content

from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.model.timeline import Moment, Source
from sandbox_console.tui.text.formatting import span
from sandbox_console.tui.widgets.braille import chart
from sandbox_console.tui.widgets.table.table import Row
from sandbox_console.tui.widgets.table.table_layout import Column

QUIET_S = 60.0
"""A time of at least this many seconds in which nothing happened has a row of its own."""
NARROWEST_S = 1.0
_TEXT_MOST = 400
_BAD_AUDIT = (": failed", ": denied", ": unknown", ": timed_out", ": unsupported")
_BAD_EVENTS = ("oom", "kill", "lost", "fail", "unhealthy")
_STYLES = {Source.AUDIT: "accent", Source.SAMPLE: "dim", Source.STATE: "dim"}
COLUMNS = (
    Column("at", "TIME", 12, 19, priority=0),
    Column("name", "SANDBOX", 8, 20, priority=1),
    Column("source", "SOURCE", 7, 7, priority=2),
    Column("what", "WHAT", 8, 18, priority=0),
    Column("text", "DETAIL", 20, 400, priority=0, flex=True),
)


class Window(Struct, frozen=True):
    """The part of the axis that is shown, in seconds since the epoch, both ends included."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.begin

    def zoomed(self, step: int, at: float, whole: Window) -> Window:
        """Half of it around a time, or twice as much, within the whole."""
        wide = max(NARROWEST_S, self.seconds / 2 if step > 0 else self.seconds * 2)
        if wide >= whole.seconds:
            return whole
        begin = min(max(at - wide / 2, whole.begin), whole.end - wide)
        return Window(begin, begin + wide)


def whole(moments: Sequence[Moment]) -> Window:
    """All of the axis."""
    return Window(moments[0].at, moments[-1].at) if moments else Window(0.0, 0.0)


def is_bad(moment: Moment) -> bool:
    """Whether a moment is trouble: an error in a log, a refused connection, a failed action, or a bad end."""
    match moment.source:
        case Source.LOG:
            return True
        case Source.EGRESS:
            return moment.what != "allowed"
        case Source.AUDIT:
            return any(word in moment.text for word in _BAD_AUDIT)
        case Source.BACKEND:
            died = moment.what == "die" and "exitCode=0" not in moment.text.split()
            return died or any(word in moment.what.lower() for word in _BAD_EVENTS)
        case Source.STATE:
            return moment.what == "ended" and moment.text not in ("", "exit 0")
    return False


def chosen(moments: Iterable[Moment], text: str, *, trouble: bool) -> list[Moment]:
    """The moments that contain every word of a text. ``source:egress`` and the like look at one field only."""
    words = [word.partition(":") for word in text.casefold().split()]
    return [
        moment for moment in moments if (not trouble or is_bad(moment)) and all(_fits(moment, *word) for word in words)
    ]


def _fits(moment: Moment, field: str, colon: str, value: str) -> bool:
    fields = {"source": str(moment.source), "what": moment.what, "name": moment.name, "text": moment.text}
    if colon and field in fields:
        return value in fields[field].casefold()
    wanted = field + colon + value
    return any(wanted in value_text.casefold() for value_text in fields.values())


def within(moments: Sequence[Moment], window: Window) -> Sequence[Moment]:
    """The moments in a window. ``moments`` are in order of time."""
    begin = bisect_left(moments, window.begin, key=lambda moment: moment.at)
    end = bisect_left(moments, True, key=lambda moment: moment.at > window.end)
    return moments[begin:end]


def rows(moments: Sequence[Moment], *, offsets: Callable[[SandboxRef], float]) -> Iterator[Row]:
    """The rows. Their keys are indexes into ``moments``; a row about a quiet time has a key below 0.

    ``offsets`` is how far the clock of a sandbox's host is ahead.
    """
    before: Moment | None = None
    for at, moment in enumerate(moments):
        if before is not None and (quiet := moment.at - (before.last_at or before.at)) >= QUIET_S:
            yield Row(-at, ("", "", "", "", f"· nothing for {span(quiet)} ·"), ("dim",) * len(COLUMNS))
        yield _row(at, moment, "≈" if offsets(moment.ref) else "")
        before = moment


def _row(at: int, moment: Moment, unsure: str) -> Row:
    often = f" ×{moment.count} until {clock(moment.last_at)}" if moment.count > 1 and moment.last_at is not None else ""
    row = f"row {moment.seq} " if moment.seq is not None else ""
    style = "error" if is_bad(moment) else _STYLES.get(moment.source, "")
    text = clean(moment.text.replace("\t", " ").replace("\n", " "), cap=_TEXT_MOST)
    cells = (f"{clock(moment.at)}{unsure}", clean(moment.name, cap=60), str(moment.source), clean(moment.what, cap=40),
             f"{row}{text}{often}")  # fmt: skip
    return Row(at, cells, ("dim", "", "dim", style, style if style == "error" else "dim"))


def clock(at: float | None) -> str:
    """A time of day with milliseconds; with the date if it is not today's window. ``?`` for one out of range."""
    try:
        moment_at = datetime.fromtimestamp(at or 0.0).astimezone()
    except (ValueError, OverflowError, OSError):
        return "?"
    return f"{moment_at:%m-%d %H:%M:%S}.{moment_at.microsecond // 1000:03}"


def axis(moments: Sequence[Moment], window: Window, width: int) -> Content:
    """How much happened when, in one line: the window's ends, and a chart with trouble in another colour."""
    begin, end = clock(window.begin), clock(window.end)
    room = width - len(begin) - len(end) - 2
    if room < 8 or not moments:
        return Content.assemble((f"{begin} – {end}" if moments else "", "$dim"))
    every, bad = [0.0] * (room * 2), [False] * room
    for moment in moments:
        at = min(room * 2 - 1, int((moment.at - window.begin) / max(window.seconds, 1e-9) * room * 2))
        every[at] += moment.count
        bad[at // 2] |= is_bad(moment)
    [line] = chart(every, room, 1, max(every))
    cells = [(char, "$text-error" if wrong else "$text-accent") for char, wrong in zip(line, bad, strict=True)]
    return Content.assemble((f"{begin} ", "$dim"), *cells, (f" {end}", "$dim"))
