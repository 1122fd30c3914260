"""The page of kept shells: who holds and who watches them, how long they last; attach, watch, end."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Protocol

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.kept_shell import KeptShell
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.text.formatting import DASH, error_words, many, span
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column

LOOK_S = 2.0
"""Seconds between looks: each asks every holder for its state."""

COLUMNS = (
    Column("name", "SHELL", 8, 24, priority=0),
    Column("sandbox", "SANDBOX", 8, 24, priority=0),
    Column("state", "STATE", 10, 15, priority=0),
    Column("left", "ENDS IN", 7, 8, "right", priority=1),
    Column("opened", "OPENED", 6, 8, "right", priority=3),
    Column("recorded", "RECORDED", 8, 8, priority=4),
    Column("size", "SIZE", 5, 8, priority=5),
    Column("by", "OPENED BY", 8, 24, priority=2),
    Column("viewers", "VIEWERS", 8, 200, priority=1, flex=True),
)


class KeptActions(Protocol):
    """What the page asks of the app. Each runs in a worker of the app."""

    async def attach_kept(self, shell: KeptShell, *, watch: bool) -> None: ...
    async def end_kept(self, shell: KeptShell) -> None: ...


class KeptShellsScreen(Screen[None]):
    """Lists the shells that processes of this user hold, whichever console opened them."""

    DEFAULT_CSS = """
    KeptShellsScreen { background: $background; }
    KeptShellsScreen > #kept-title {
        height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis;
    }
    KeptShellsScreen > .note { height: auto; max-height: 6; padding: 0 1; display: none; }
    KeptShellsScreen > .note.-on { display: block; }
    KeptShellsScreen > #kept-problem { color: $text-error; }
    KeptShellsScreen > #kept-empty { padding: 1 2; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["kept"]

    def __init__(self, console: Console, actions: KeptActions, clock: Callable[[], float]) -> None:
        super().__init__()
        self._service, self._actions, self._clock = console, actions, clock
        self._shells: list[KeptShell] | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="kept-title", markup=False)
        yield Static(id="kept-problem", classes="note", markup=False)
        yield FleetTable(COLUMNS, id="kept-rows")
        yield Static(id="kept-empty", classes="note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self.set_interval(LOOK_S, self._look_soon)
        self._draw()
        self._look_soon()

    def on_screen_resume(self) -> None:
        self._look_soon()

    def _look_soon(self) -> None:
        if not any(worker.group == "kept-look" and not worker.is_finished for worker in self.workers):
            self.run_worker(self._look(), group="kept-look")

    async def _look(self) -> None:
        problem = ""
        try:
            self._shells = await self._service.kept_shells.list()
        except (OSError, ConsoleError) as error:
            problem = error_words(error) if isinstance(error, ConsoleError) else error.strerror or str(error)
        put_note(self, "#kept-problem", plain(f"✕ {problem}" if problem else ""))
        self._draw()

    def _draw(self) -> None:
        shells, now = self._shells or [], self._clock()
        for table in self.query(FleetTable):
            table.set_rows([_row(shell, now) for shell in shells])
            table.display = bool(shells)
        told = "reading…" if self._shells is None else many(len(shells), "shell") if shells else "none"
        put(self, "#kept-title", Content.assemble(("Kept shells", "bold $primary"), (f"  {told}", "$dim")))
        empty = "No shell is kept. sandbox-console shell NAME --keep, or shell.keep = true, keeps one."
        put_note(self, "#kept-empty", plain("" if shells or self._shells is None else empty))

    # --- keys

    def _do(self, action: Callable[[KeptShell], Coroutine[Any, Any, None]]) -> None:
        key = self.query_one(FleetTable).cursor_key
        shell = next((shell for shell in self._shells or [] if shell.id == key), None)
        if shell is None:
            self.notify("There is no kept shell.", severity="warning")
        else:
            self.app.run_worker(self._then_look(action(shell)))

    async def _then_look(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        if self.is_attached:
            self._look_soon()

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        self.action_attach()

    def action_attach(self) -> None:
        """Show the shell under the cursor, and type into it."""
        self._do(lambda shell: self._actions.attach_kept(shell, watch=False))

    def action_watch(self) -> None:
        """Show the shell under the cursor without typing into it."""
        self._do(lambda shell: self._actions.attach_kept(shell, watch=True))

    def action_end(self) -> None:
        """End the shell under the cursor for everybody, after a question."""
        self._do(self._actions.end_kept)

    def action_copy_command(self) -> None:
        """Copy the command that attaches to the shell under the cursor."""
        key = self.query_one(FleetTable).cursor_key
        name = next((shell.name for shell in self._shells or [] if shell.id == key), "")
        command = f"sandbox-console shells attach {name}" if name else "sandbox-console shells ls"
        self.app.copy_to_clipboard(command)
        self.notify(f"Copied: {command}")


def _row(shell: KeptShell, now: float) -> Row:
    typing = [clean(viewer.actor, cap=60) for viewer in shell.viewers if not viewer.read_only]
    watching = [f"{clean(viewer.actor, cap=60)} (watches)" for viewer in shell.viewers if viewer.read_only]
    state = f"● {len(shell.viewers)} attached" if shell.viewers else "○ nobody"
    if not shell.answers:
        state = "? no answer"
    cells = (
        clean(shell.name, cap=60), clean(shell.sandbox, cap=60), state, span(shell.left_s) if shell.answers else DASH,
        span(now - shell.began), ("yes" if shell.recorded else "no") if shell.answers else DASH,
        f"{shell.cols}x{shell.rows}" if shell.answers else DASH, clean(shell.actor, cap=60),
        ", ".join([*typing, *watching]) or DASH,
    )  # fmt: skip
    order = (shell.name, shell.sandbox, state, shell.left_s, shell.began, shell.recorded, shell.cols, shell.actor, "")
    style = "error" if not shell.answers else "ok" if shell.viewers else "dim"
    return Row(shell.id, cells, ("", "", style, "", "dim", "dim", "dim", "dim", ""), order)
