"""Plays a recording: pause, speed, jumps in time and to matches, with idle times cut short."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.geometry import Region
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.recording import Check, Recording
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.keys.keymap import no_search
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.recordings.playback import Playback
from sandbox_console.tui.recordings.recording_rows import CHECK_STYLES, clock, when
from sandbox_console.tui.recordings.recording_view import RecordedArea, RecordedScreen
from sandbox_console.tui.shell.terminal_questions import TerminalQuestions
from sandbox_console.tui.text.formatting import error_words
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

FRAME_S = 1 / 30
IDLE_S = 1.0
"""How much of an idle time is played."""

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0)
SCROLLBACK_LINES = 0
"""Beyond the page or two that the emulator always keeps. Each keyframe has a copy."""

_MATCHES_MOST = 10_000


class PlayerScreen(TerminalQuestions, Screen[None]):
    """Plays from a second on, or stops there at first: if ``paused``, or for ``wanted``, a text for n and N to find."""

    DEFAULT_CSS = """
    PlayerScreen { background: $background; }
    PlayerScreen > #player-title, PlayerScreen > #player-bar, PlayerScreen > #player-state {
        height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    PlayerScreen > #player-screen { height: 1fr; background: black; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["player"]

    def __init__(
        self, console: Console, recording: Recording, at: float = 0.0, wanted: str = "", *, paused: bool = False
    ) -> None:
        super().__init__()
        self._service, self._recording = console, recording
        self._playback = Playback(
            console.recordings.path(recording.id), lambda cols, rows: GhosttyEmulator(cols, rows, SCROLLBACK_LINES)
        )
        self._at = at
        self._playing, self._ended, self._problem = not (wanted or paused), False, ""
        self._speed, self._skips_idle = 1.0, True
        self._target: float | None = at
        self._shown_at = at  # when the recording last showed something, for the idle time
        self._wanted, self._matches = wanted, list[float]()
        self._wake = asyncio.Event()

    def compose(self) -> ComposeResult:
        yield Static(id="player-title", markup=False)
        yield RecordedArea(id="player-screen")
        yield Static(id="player-bar", markup=False)
        yield Static(id="player-state", markup=False)
        yield KeyBar()

    async def on_mount(self) -> None:
        self._head()
        self.run_worker(self._play(), group="player")
        if self._wanted:
            self._look_for(self._wanted, go=False)

    def on_unmount(self) -> None:
        self._playback.close()

    # --- playing

    async def _play(self) -> None:
        """Follow the keys until the page is left."""
        try:
            await self._playback.open()
            view = RecordedScreen(self._playback.emulator)
            await self.query_one(RecordedArea).mount(view)
            view.focus()
            self.run_worker(self._index(), group="player-index")
            before = monotonic()
            while self.is_attached:
                passed, before = monotonic() - before, monotonic()
                await self._step(passed)
                self._draw()
                await self._rest()
                before = before if self._playing else monotonic()
        except (OSError, ValueError, ConsoleError) as error:
            self._fail(error)

    async def _index(self) -> None:
        try:
            await self._playback.index()
        except (OSError, ValueError) as error:
            self._fail(error)

    async def _step(self, passed: float) -> None:
        playback = self._playback
        if self._target is not None:
            self._at, self._target = self._target, None
            await playback.seek(self._at)
            self._shown_at = self._at
        elif self._playing:
            due = playback.next_at
            self._at += passed * self._speed
            if due is not None and self._skips_idle and self._at - self._shown_at > IDLE_S:
                self._at = max(self._at, due)
            if due is not None and due <= self._at:
                self._shown_at = self._at
            await playback.advance(self._at)
        if playback.next_at is None:
            self._at = min(self._at, max(self._recording.duration_s, self._shown_at))
            self._playing = False

    async def _rest(self) -> None:
        """Wait for the next frame, or for a key while nothing moves."""
        self._wake.clear()
        if self._target is None:
            try:
                async with asyncio.timeout(FRAME_S if self._playing else None):
                    await self._wake.wait()
            except TimeoutError:
                return

    def _fail(self, error: Exception) -> None:
        words = error_words(error) if isinstance(error, ConsoleError) else str(getattr(error, "strerror", "") or error)
        self._problem, self._playing = clean(words, cap=200), False
        self._state()

    def _go(self, at: float) -> None:
        self._target = min(max(at, 0.0), self._recording.duration_s)
        self._wake.set()

    @property
    def _now(self) -> float:
        return self._at if self._target is None else self._target

    # --- drawing

    def _draw(self) -> None:
        for view in self.query(RecordedScreen):
            view.show(self._playback.emulator)
        self.call_after_refresh(self._follow)  # its size may have changed
        self._bar()
        self._state()

    def _follow(self) -> None:
        """Scroll a larger terminal to its cursor."""
        cursor = self._playback.emulator.cursor
        for view in self.query(RecordedScreen):
            if cursor is not None and view.copying is None:
                place = Region(cursor.x, cursor.y, 1, 1)
                self.query_one(RecordedArea).scroll_to_region(place, animate=False, immediate=True)

    def _head(self) -> None:
        one = self._recording
        command = f"  $ {clean(one.command, cap=200)}" if one.command else ""
        put(self, "#player-title", Content.assemble(
            ("Recording  ", "bold"), (clean(one.name, cap=60), "bold $primary"), (command, ""),
            (f"  {when(one.at)} by {clean(one.actor, cap=40)}  ", "$dim"),
            (str(one.check), CHECK_STYLES.get(one.check, "$dim")),
        ))  # fmt: skip

    def _bar(self) -> None:
        cells = max(self.size.width - 2, 10)
        whole = self._recording.duration_s
        done = min(cells, round(cells * self._at / whole)) if whole > 0 else cells
        put(self, "#player-bar", Content.assemble(("━" * done, "$primary"), ("─" * (cells - done), "$dim")))

    def _state(self) -> None:
        if self._problem:
            put(self, "#player-state", Content.assemble((f"✕ {self._problem}", "$text-error")))
            return
        sign = "▶" if self._playing else "■" if self._playback.next_at is None else "‖"
        words = [
            (f"{sign} {clock(self._now)} / {clock(self._recording.duration_s)}", "bold"),
            (f"  {self._speed:g}x", "$text-accent" if self._speed != 1 else "$dim"),
            ("  idle skipped" if self._skips_idle else "  idle played", "$dim"),
        ]
        if self._wanted:
            place = bisect_right(self._matches, self._now)
            words.append((f"  “{clean(self._wanted, cap=30)}” {place}/{len(self._matches)}", "$text-warning"))
        if self._recording.check is Check.CHANGED:
            words.append(("  the file was changed", "$text-error"))
        put(self, "#player-state", Content.assemble(*words))

    # --- keys

    def action_play(self) -> None:
        """Play or pause. At the end it begins again."""
        if self._playback.next_at is None and not self._playing:
            self._go(0.0)
        self._playing = not self._playing
        self._shown_at = self._now
        self._wake.set()

    def action_seek(self, seconds: float) -> None:
        """Go back or forward."""
        self._go(self._now + seconds)

    def action_tenth(self, number: int) -> None:
        """Go to a tenth of the recording."""
        self._go(self._recording.duration_s * number / 10)

    def action_edge(self, end: int) -> None:
        """Go to the beginning or to the end."""
        self._go(self._recording.duration_s if end else 0.0)

    def action_next_change(self) -> None:
        """Pause, and go to the next moment at which something was written."""
        if self._playback.next_at is not None:
            self._playing = False
            self._go(self._playback.next_at)

    def action_speed(self, step: int) -> None:
        """Play faster or slower."""
        at = SPEEDS.index(self._speed) + step
        self._speed = SPEEDS[min(max(at, 0), len(SPEEDS) - 1)]
        self._wake.set()

    def action_idle(self) -> None:
        """Skip idle times, or play them."""
        self._skips_idle = not self._skips_idle
        self._wake.set()

    def action_scroll(self, columns: int, rows: int) -> None:
        """Scroll where the recorded terminal is larger than this one."""
        box = self.query_one(RecordedArea)
        box.scroll_relative(columns, rows, animate=False)

    def action_copy_mode(self) -> None:
        """Pause, and copy from the screen."""
        self._playing = False
        for view in self.query(RecordedScreen):
            view.focus()
            view.begin_copy()

    def action_copy_command(self) -> None:
        """Copy the command that plays this recording on a terminal."""
        command = f"sandbox-console recordings play {self._recording.id}"
        self.app.copy_to_clipboard(command)
        self.notify(f"Copied: {command}")

    # --- matches

    def action_search(self) -> None:
        """Ask which text to go to."""
        question = AskScreen("Search in the recording", "text, upper and lower case alike", self._wanted)
        self.app.push_screen(question, lambda text: self._look_for(text) if text else None)

    def _look_for(self, wanted: str, *, go: bool = True) -> None:
        self._wanted, self._matches = wanted, []
        self.run_worker(self._find(wanted, go=go), group="player-find", exclusive=True)

    async def _find(self, wanted: str, *, go: bool) -> None:
        found: list[float] = []
        try:
            async for line in self._service.recordings.matches(self._recording.id, wanted):
                found.append(line.ended)
                if len(found) == _MATCHES_MOST:
                    break
        except (OSError, ConsoleError) as error:
            self._fail(error)
        self._matches = sorted(found)
        if not found:
            self.notify(f"{wanted!r} is not in this recording.", title="search", severity="warning")
        elif go:
            self._playing = False
            self._go(following(self._matches, self._now, 1))
        self._wake.set()

    def action_next_match(self, step: int) -> None:
        """Pause, and go to the next match or to the one before."""
        if not self._wanted:
            self.notify(no_search(self, "player-search"), severity="warning")
        elif self._matches:
            self._playing = False
            self._go(following(self._matches, self._now, step))


def following(times: Sequence[float], now: float, step: int) -> float:
    """The next time after now, or the last one before, around the ends."""
    at = bisect_right(times, now) if step > 0 else bisect_left(times, now) - 1
    return times[at % len(times)]
