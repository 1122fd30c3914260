"""The page of recordings: of one sandbox or of all, with a search over everything that they show."""

from __future__ import annotations

import shlex
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.recording import Recording, RecordingMatch
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.recordings.recording_rows import MATCHES, RECORDINGS, match_row, recording_row
from sandbox_console.tui.text.formatting import error_words, many, shown_name, size
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.table.table_layout import Column

MATCHES_MOST = 5000


class RecordingsScreen(Screen[None]):
    """Lists the recordings of ``sandbox`` at first, if one is given, and those of all on a key."""

    DEFAULT_CSS = """
    RecordingsScreen { background: $background; }
    RecordingsScreen > #recordings-title {
        height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    RecordingsScreen > #recordings-line { height: 1; display: none; background: $panel; }
    RecordingsScreen > #recordings-line.-on { display: block; }
    RecordingsScreen #recordings-search { width: 1fr; height: 1; border: none; padding: 0; background: $panel; }
    RecordingsScreen #recordings-mark { width: 3; padding: 0 1; color: $primary; text-style: bold; }
    RecordingsScreen > .note { height: auto; max-height: 6; padding: 0 1; color: $text-muted; display: none; }
    RecordingsScreen > .note.-on { display: block; }
    RecordingsScreen > #recordings-problem { color: $text-error; }
    RecordingsScreen > #recordings-empty { padding: 1 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["recordings"]

    def __init__(self, console: Console, sandbox: Sandbox | None = None) -> None:
        super().__init__()
        self._service, self._sandbox = console, sandbox
        self._all = sandbox is None
        self._recordings: list[Recording] | None = None
        self._wanted = ""
        self._matches: list[RecordingMatch] = []
        self._searching = False

    def compose(self) -> ComposeResult:
        yield Static(id="recordings-title", markup=False)
        with Horizontal(id="recordings-line"):
            yield Static("/", id="recordings-mark", markup=False)
            yield Input(id="recordings-search", compact=True, placeholder="text in any of them; Enter searches")
        yield Static(id="recordings-problem", classes="note", markup=False)
        yield FleetTable(RECORDINGS, id="recordings-rows")
        yield Static(id="recordings-empty", classes="note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self.action_again()

    # --- reading

    def action_again(self) -> None:
        """Read the list again."""
        self.run_worker(self._read(), group="recordings", exclusive=True)

    async def _read(self) -> None:
        self._draw()
        try:
            self._recordings = await self._service.recordings.list()
            problem = ""
        except (OSError, ConsoleError) as error:
            self._recordings, problem = self._recordings or [], _words(error)
        put_note(self, "#recordings-problem", plain(f"✕ {problem}" if problem else ""))
        self._draw()

    @property
    def _listed(self) -> list[Recording]:
        ref = self._sandbox.ref if self._sandbox is not None else None
        return [one for one in self._recordings or [] if self._all or one.ref == ref]

    async def _search(self) -> None:
        """Look through the recordings that are listed, and show what is found as it is found."""
        self._matches, self._searching = [], True
        for recording in self._listed:
            self._draw()
            if not recording.problem and not await self._search_one(recording):
                break
        self._searching = False
        self._draw()

    async def _search_one(self, recording: Recording) -> bool:
        """Search one. Returns False if there are too many matches."""
        try:
            async for line in self._service.recordings.matches(recording.id, self._wanted):
                self._matches.append(RecordingMatch(recording, line.began, line.text, line.ended))
                if len(self._matches) == MATCHES_MOST:
                    return False
        except (OSError, ConsoleError) as error:
            put_note(self, "#recordings-problem", plain(f"✕ {recording.id}: {_words(error)}"))
        return True

    # --- drawing

    def _draw(self) -> None:
        columns: tuple[Column, ...] = MATCHES if self._wanted else RECORDINGS
        rows = (
            [match_row(number, one) for number, one in enumerate(self._matches)]
            if self._wanted
            else [recording_row(one) for one in self._listed]
        )
        for table in self.query(FleetTable):
            if table.columns != columns:
                table.set_columns(columns)
            table.set_rows(rows)
            table.display = bool(rows)
        put(self, "#recordings-title", Content.assemble(*self._head()))
        put_note(self, "#recordings-empty", plain("" if rows else self._empty()))

    def _head(self) -> list[tuple[str, str]]:
        whose = "of all sandboxes" if self._all or self._sandbox is None else f"of {shown_name(self._sandbox)}"
        words = [("Recordings ", "bold $primary"), (whose, "")]
        if self._wanted:
            found = (
                many(len(self._matches), "line")
                if len(self._matches) < MATCHES_MOST
                else f"the first {MATCHES_MOST} lines"
            )
            words.append((f"  {found} with “{clean(self._wanted, cap=40)}”", "$text-warning"))
            words += [("  searching…", "$text-accent")] if self._searching else []
        elif self._recordings is None:
            words.append(("  reading…", "$text-accent"))
        else:
            bytes_listed = size(sum(one.size_bytes for one in self._listed))
            words.append((f"  {len(self._listed)}, {bytes_listed}", "$dim"))
        return words

    def _empty(self) -> str:
        if self._recordings is None or self._searching:
            return ""
        if self._wanted:
            return f"No recorded line contains {self._wanted!r}."
        how = 'Recording is on with recording.mode = "best-effort" in the configuration, or shell or exec --record.'
        other = hint(self, "recordings-all", "shows those of all sandboxes.") if not self._all else ""
        return f"Nothing is recorded yet. {how} {other}".rstrip()

    # --- keys

    def action_search(self) -> None:
        """Open the line for a text."""
        self.query_one("#recordings-line").add_class("-on")
        self.set_focus(self.query_one("#recordings-search", Input))

    @on(Input.Submitted, "#recordings-search")
    def _asked(self, event: Input.Submitted) -> None:
        self._wanted = event.value.strip()
        self.query_one("#recordings-line").set_class(bool(self._wanted), "-on")
        self.query_one(FleetTable).focus()
        self._again()

    def _again(self) -> None:
        if self._wanted:
            self.run_worker(self._search(), group="recordings-search", exclusive=True)
        else:
            self.workers.cancel_group(self, "recordings-search")
            self._matches, self._searching = [], False
            self._draw()

    def action_all(self) -> None:
        """Show the recordings of all sandboxes, or only those of the one it began with."""
        if self._sandbox is None:
            self.notify("These are the recordings of all sandboxes.", severity="warning")
            return
        self._all = not self._all
        self._again()

    def action_back(self) -> None:
        """End the search, or leave."""
        line = self.query_one("#recordings-search", Input)
        if self._wanted or line.has_focus:
            line.value = self._wanted = ""
            self.query_one("#recordings-line").remove_class("-on")
            self.query_one(FleetTable).focus()
            self._again()
        else:
            self.dismiss()

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        self.action_play()

    def action_play(self) -> None:
        """Play the recording under the cursor, from the line that was found if there was a search."""
        key = self.query_one(FleetTable).cursor_key
        match = self._matches[key] if self._wanted and isinstance(key, int) and key < len(self._matches) else None
        recording = match.recording if match else next((one for one in self._listed if one.id == key), None)
        if recording is None:
            return
        if recording.problem:
            self.notify(f"It cannot be read: {clean(recording.problem, cap=200)}", severity="warning")
            return
        from sandbox_console.tui.recordings.player_screen import PlayerScreen  # with its emulator

        try:
            page = PlayerScreen(self._service, recording, match.ended_s if match else 0.0, self._wanted)
        except ConsoleError as error:  # it was removed meanwhile
            self.notify(error_words(error), severity="error")
            return
        self.app.push_screen(page)

    def action_copy_command(self) -> None:
        """Copy the command that plays the recording under the cursor, or that does the search."""
        key = self.query_one(FleetTable).cursor_key
        if self._wanted:
            command = shlex.join(["sandbox-console", "recordings", "search", self._wanted])
        elif isinstance(key, str):
            command = f"sandbox-console recordings play {key}"
        else:
            command = "sandbox-console recordings ls"
        self.app.copy_to_clipboard(command)
        self.notify(f"Copied: {clean(command, cap=200)}")


def _words(error: OSError | ConsoleError) -> str:
    return error_words(error) if isinstance(error, ConsoleError) else error.strerror or str(error)
