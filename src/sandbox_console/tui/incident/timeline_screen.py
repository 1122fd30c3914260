"""The timeline of one or more sandboxes: everything on record about them, on one axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

from textual import getters, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.recording import Recording
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.model.timeline import Missing, Moment, Source, Timeline
from sandbox_console.service import Console
from sandbox_console.service.incident.timeline import timeline
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.detail.audit_tab import entry_words
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.incident import timeline_rows
from sandbox_console.tui.incident.timeline_rows import Window
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.text.formatting import error_words, many, shown_name, span
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column

_NOTES = 3


class LogPlace(NamedTuple):
    """A place in a log. ``at_ns`` is in nanoseconds since the epoch."""

    ref: SandboxRef
    at_ns: int


class TimelineScreen(Screen[LogPlace | None]):
    """Returns the place in a log to go to, or None."""

    DEFAULT_CSS = """
    TimelineScreen { background: $background; }
    TimelineScreen > #timeline-title {
        height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    TimelineScreen > #timeline-axis { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }
    TimelineScreen > #timeline-line { height: 1; display: none; background: $panel; }
    TimelineScreen > #timeline-line.-on { display: block; }
    TimelineScreen #timeline-filter { width: 1fr; height: 1; border: none; padding: 0; background: $panel; }
    TimelineScreen #timeline-mark { width: 3; padding: 0 1; color: $primary; text-style: bold; }
    TimelineScreen > #timeline-notes { height: auto; max-height: 4; padding: 0 1; color: $text-warning; display: none; }
    TimelineScreen > #timeline-notes.-on { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["timeline"]

    console_app = getters.app(BaseApp)

    def __init__(self, console: Console, sandboxes: Sequence[Sandbox], clock: Callable[[], float]) -> None:
        super().__init__()
        self._service = console
        self._sandboxes = sandboxes
        self._clock = clock
        self._timeline: Timeline | None = None
        self._chosen: list[Moment] = []
        self._shown: Sequence[Moment] = ()
        self._window: Window | None = None
        self._text = ""
        self._trouble = False

    def compose(self) -> ComposeResult:
        yield Static(id="timeline-title", markup=False)
        yield Static(id="timeline-axis", markup=False)
        with Horizontal(id="timeline-line"):
            yield Static("/", id="timeline-mark", markup=False)
            yield Input(id="timeline-filter", compact=True)
        yield Static(id="timeline-notes", markup=False)
        yield FleetTable(self._columns, id="timeline-rows")
        yield KeyBar()

    @property
    def _columns(self) -> tuple[Column, ...]:
        several = len(self._sandboxes) > 1
        return tuple(column for column in timeline_rows.COLUMNS if several or column.key != "name")

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self.action_again()

    # --- reading

    def action_again(self) -> None:
        """Read everything again."""
        self.run_worker(self._read(), group="timeline", exclusive=True)

    async def _read(self) -> None:
        self._head("reading…")
        found_timeline = await timeline(self._service, self._sandboxes, samples=self.console_app.fleet.history)
        first = self._timeline is None
        self._timeline = found_timeline
        self._choose()
        for table in self.query(FleetTable) if first else ():  # none: the page was closed meanwhile
            table.action_go(-1)

    # --- drawing

    def _choose(self) -> None:
        if self._timeline is not None:
            self._chosen = timeline_rows.chosen(self._timeline.moments, self._text, trouble=self._trouble)
            self._draw()

    def _draw(self) -> None:
        if self._timeline is None:
            return
        window = self._window or timeline_rows.whole(self._timeline.moments)
        self._shown = timeline_rows.within(self._chosen, window) if self._chosen else ()
        ahead = {(one.backend, one.host): one.seconds for one in self._timeline.clocks}
        several = len(self._sandboxes) > 1
        found = timeline_rows.rows(self._shown, offsets=lambda ref: ahead.get((ref.backend, ref.host), 0.0))
        for table in self.query(FleetTable):
            table.set_rows([row if several else _without_name(row) for row in found])
        put(self, "#timeline-axis", timeline_rows.axis(self._shown, window, self.size.width - 2))
        put_note(self, "#timeline-notes", plain("\n".join(_notes(self._timeline))))
        self._head(f"as of {timeline_rows.clock(self._clock())[6:14]}")

    def _head(self, state: str) -> None:
        sandbox = self._sandboxes[0]
        who = shown_name(sandbox) if len(self._sandboxes) == 1 else many(len(self._sandboxes))
        every = len(self._timeline.moments) if self._timeline else 0
        words = [("Timeline  ", "bold"), (who, "bold $primary"), (f"  {len(self._shown)} of {every}", "$dim")]
        if self._window is not None:
            words.append((f"  zoom {span(self._window.seconds)}", "$text-accent"))
        if self._trouble:
            words.append(("  trouble only", "$text-warning"))
        if self._text:
            words.append((f"  filter: {clean(self._text, cap=60)}", "$text-warning"))
        put(self, "#timeline-title", Content.assemble(*words, (f"  {state}", "$dim")))

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    # --- keys that change what is shown

    def action_zoom(self, step: int) -> None:
        """Show half the time around the cursor, or twice as much."""
        if self._timeline is not None and self._timeline.moments:
            every = timeline_rows.whole(self._timeline.moments)
            at = moment.at if (moment := self._moment) is not None else every.end
            window = (self._window or every).zoomed(step, at, every)
            self._window = None if window == every else window
            self._keep_cursor(self._draw)

    def action_trouble(self) -> None:
        """Show only trouble, or everything."""
        self._trouble = not self._trouble
        self._keep_cursor(self._choose)

    def _keep_cursor(self, draw: Callable[[], None]) -> None:
        """Draw, with the cursor on the same moment as before, or the next one."""
        before = self._moment
        draw()
        if before is not None and self._shown:
            at = next((at for at, moment in enumerate(self._shown) if moment.at >= before.at), len(self._shown) - 1)
            self.query_one(FleetTable).move_to(at)

    def action_filter(self) -> None:
        """Open the filter line."""
        self.query_one("#timeline-line").add_class("-on")
        self.set_focus(self.query_one("#timeline-filter", Input))

    @on(Input.Changed, "#timeline-filter")
    def _typed(self, event: Input.Changed) -> None:
        self._text = event.value.strip()
        self._choose()

    @on(Input.Submitted, "#timeline-filter")
    def _kept(self) -> None:
        self.query_one("#timeline-line").set_class(bool(self._text), "-on")
        self.query_one(FleetTable).focus()

    def action_back(self) -> None:
        """Clear the filter, then the zoom, or leave."""
        line = self.query_one("#timeline-filter", Input)
        if self._text or line.has_focus:
            line.value = self._text = ""
            self._kept()
            self._choose()
        elif self._window is not None:
            self._window = None
            self._keep_cursor(self._draw)
        else:
            self.dismiss(None)

    # --- keys that go elsewhere

    @property
    def _moment(self) -> Moment | None:
        """The moment under the cursor."""
        key = self.query_one(FleetTable).cursor_key
        return self._shown[abs(key)] if isinstance(key, int) and abs(key) < len(self._shown) else None

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        moment = self._moment
        if moment is None:
            return
        if moment.source is Source.LOG:
            self.action_log()
        elif moment.seq is not None:
            self.run_worker(self._open_row(moment.seq), group="timeline-row", exclusive=True)
        else:
            title = f"{moment.source} of {shown_name(self._sandbox(moment))}"
            self.app.push_screen(TextScreen(title, moment_words(moment)))

    async def _open_row(self, seq: int) -> None:
        try:
            entry = await self._service.audit_entry(seq)
        except ConsoleError as error:
            self.notify(error_words(error), title="audit", severity="error")
            return
        if self.app.screen is self:
            self.app.push_screen(TextScreen(f"Audit row {seq}", partial(entry_words, entry)))

    def action_log(self) -> None:
        """Go to the log at this time."""
        if (moment := self._moment) is not None:
            self.dismiss(LogPlace(moment.ref, int((moment.at - 1e-6) * 1e9)))

    def action_recording(self) -> None:
        """Open the player of a recorded shell at this time."""
        if (moment := self._moment) is not None:
            self.run_worker(self._open_recording(moment), group="timeline-row", exclusive=True)

    async def _open_recording(self, moment: Moment) -> None:
        from sandbox_console.tui.recordings.player_screen import PlayerScreen  # with its emulator

        try:
            recording = next((one for one in await self._service.recordings.list() if _covers(one, moment)), None)
            if recording is None:
                self.notify("No recorded shell was open at this time.", severity="warning")
            elif self.app.screen is self:
                second = min(max(moment.at - recording.at, 0.0), recording.duration_s)
                self.app.push_screen(PlayerScreen(self._service, recording, second, paused=True))
        except ConsoleError as error:
            self.notify(error_words(error), title="recording", severity="error")

    def _sandbox(self, moment: Moment) -> Sandbox:
        return next(sandbox for sandbox in self._sandboxes if sandbox.ref == moment.ref)

    def action_copy(self) -> None:
        """Copy the command that prints this timeline."""
        command = " ".join(["sandbox-console timeline", *(str(sandbox.ref) for sandbox in self._sandboxes)])
        self.app.copy_to_clipboard(command)
        self.notify(f"Copied: {clean(command, cap=200)}")


def _covers(recording: Recording, moment: Moment) -> bool:
    """Whether a recording was going on. A shell's row in the audit log is a moment before its recording."""
    mine = recording.audit_id == moment.seq if moment.seq is not None else False
    during = recording.at - 1 <= moment.at <= recording.at + recording.duration_s + 1
    return recording.ref == moment.ref and not recording.problem and (mine or during)


def _without_name(row: Row) -> Row:
    return row._replace(cells=(row.cells[0], *row.cells[2:]), styles=(row.styles[0], *row.styles[2:]))


def _notes(timeline: Timeline) -> list[str]:
    """What is not in it, in at most a few lines, and the clocks that differ."""
    found = [f"≈ {clean(str(one), cap=200)}" for one in timeline.clocks]
    gaps = [_gap(one) for one in timeline.missing]
    found += (
        gaps if len(gaps) <= _NOTES else [*gaps[:_NOTES], f"… and {len(gaps) - _NOTES} more sources are incomplete"]
    )
    return found


def _gap(one: Missing) -> str:
    return f"✕ {clean(one.name, cap=40)}: {one.source}: {clean(one.why, cap=200)}"


def moment_words(moment: Moment) -> Content:
    """A moment in full."""
    last = [f"last at   {timeline_rows.clock(moment.last_at)}  ({moment.count} times)"] if moment.count > 1 else []
    lines = [
        f"at        {timeline_rows.clock(moment.at)}",
        f"source    {moment.source}",
        f"what      {moment.what}",
        *last,
    ]
    return Content("\n".join(clean(line, cap=4000) for line in [*lines, "", *moment.text.splitlines()]))
