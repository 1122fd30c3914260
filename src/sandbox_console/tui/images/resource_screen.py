"""The images or snapshots of all backends in one list. Each backend answers, or reports why it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from textual import getters
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.capability import Capability
from sandbox_console.model.event import Acted
from sandbox_console.model.sandbox import HostKey
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.dialogs.action_menu import Choice, MenuScreen
from sandbox_console.tui.images.image_flow import HostFlow
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.formatting import error_words, host_label
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.table.table_layout import Column
from sandbox_console.tui.widgets.table.table_rows import Row

Resource = TypeVar("Resource")


class ResourceScreen(Screen[None], Generic[Resource]):
    """A list that is read when it is opened, after changes to its contents, and with ``r``."""

    DEFAULT_CSS = """
    ResourceScreen { background: $background; }
    ResourceScreen > #holdings-title { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }
    ResourceScreen > .note { height: auto; max-height: 8; padding: 0 1; color: $text-muted; display: none; }
    ResourceScreen > .note.-on { display: block; }
    ResourceScreen > #holdings-empty { padding: 1 2; }
    ResourceScreen > #holdings-progress { background: $surface; }
    ResourceScreen Footer { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "reload", "Refresh", show=False),
        Binding("Y", "copy_command", "Copy as command", show=False),
        Binding("escape,q", "dismiss", "Back"),
        Binding("question_mark", "app.help", "Help"),
    ]
    TITLE_WORDS: ClassVar[str]
    EMPTY: ClassVar[str]
    NEXT: ClassVar[tuple[str, str]]
    """The action that creates the first one, and the description of its key."""
    CAPABILITY: ClassVar[Capability]
    COLUMNS: ClassVar[Sequence[Column]]
    console_app = getters.app(BaseApp)

    def __init__(self, console: Console, flow: HostFlow, clock: Callable[[], float]) -> None:
        super().__init__()
        self._service = console
        self._flow = flow
        self._clock = clock
        self._found: dict[HostKey, Sequence[Resource]] = {}
        self._waiting: set[HostKey] = set()
        self._reasons: dict[HostKey, Content] = {}
        self._acted: tuple[Acted, ...] = ()

    # --- for subclasses

    async def fetch(self, host_key: HostKey) -> Sequence[Resource]:
        """Return what a backend has. Raises ConsoleError."""
        raise NotImplementedError

    def rows(self, one: Resource, now: float) -> list[Row]:
        """Return the rows of an item. The key of each row leads back to the item."""
        raise NotImplementedError

    def summary(self, resources: Sequence[Resource]) -> str:
        """Return a short summary of all items."""
        raise NotImplementedError

    def commands(self) -> list[Choice]:
        """Return the commands that can be copied for the selection."""
        raise NotImplementedError

    # --- contents

    def compose(self) -> ComposeResult:
        yield Static(id="holdings-title", markup=False)
        yield FleetTable(self.COLUMNS, id="holdings")
        yield Static(id="holdings-empty", classes="note", markup=False)
        yield Static(id="holdings-progress", classes="note", markup=False)
        yield Static(id="holdings-reasons", classes="note", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one(FleetTable).focus()
        self._acted = self.console_app.fleet.acted[-1:]
        self.watch(self.console_app, "fleet", self._reload_if_acted, init=False)
        self.reload()

    def _reload_if_acted(self, state: FleetState) -> None:
        if state.acted[-1:] != self._acted:
            self._acted = state.acted[-1:]
            self.reload()

    @property
    def able(self) -> list[HostKey]:
        """The backends that support this and have answered, that of the row under the cursor first."""
        under = self.place_of(self.query_one(FleetTable).cursor_key)
        return sorted(self._found, key=lambda host_key: host_key != under)

    @property
    def key(self) -> Any:
        """The key of the row under the cursor."""
        return self.query_one(FleetTable).cursor_key

    def place_of(self, key: Any) -> HostKey | None:
        """Return the backend of a row."""
        return key[0] if key is not None else None

    def resources(self, host_key: HostKey) -> Sequence[Resource]:
        """Return what a backend answered."""
        return self._found.get(host_key, ())

    # --- loading

    def reload(self) -> None:
        """Read from every backend again. The rows stay until it has answered."""
        self.run_worker(self._ask_all(), group="holdings", exclusive=True)

    async def _ask_all(self) -> None:
        places = list(self.console_app.fleet.health)
        if not places:  # opened before any of them answered
            places = [(health.backend, health.host) for health in await self._service.health()]
        self._waiting = set(places)
        for gone in set(self._found) - self._waiting:
            del self._found[gone]
        self._reasons = {}
        self.draw()
        await asyncio.gather(*(self._ask(host_key) for host_key in places))

    async def _ask(self, host_key: HostKey) -> None:
        try:
            can = await self._service.capabilities(*host_key)
            if can.has(self.CAPABILITY):
                self._found[host_key] = await self.fetch(host_key)
            else:
                health = self.console_app.fleet.health.get(host_key)
                reason = can.reason(self.CAPABILITY) if health is None or health.ok else health.reason
                self._lacks(host_key, reason or can.reason(self.CAPABILITY), "–", "$dim")
        except ConsoleError as error:
            self._lacks(host_key, error_words(error), "✕", "$text-error")
        self._waiting.discard(host_key)
        self.draw()

    def _lacks(self, host_key: HostKey, reason: str, sign: str, style: str) -> None:
        self._found.pop(host_key, None)
        self._reasons[host_key] = Content.assemble((f"{sign} {host_label(host_key)}: {clean(reason, cap=300)}", style))

    # --- drawing

    def draw(self) -> None:
        """Show the answers so far."""
        if not self.is_attached:
            return
        now = self._clock()
        resources = [one for found in self._found.values() for one in found]
        for table in self.query(FleetTable):
            table.set_rows([row for one in resources for row in self.rows(one, now)])
            table.display = bool(resources)
        waiting = ", ".join(map(host_label, sorted(self._waiting)))
        summary = self.summary(resources) if self._found else ""
        put(self, "#holdings-title", Content.assemble(
            (self.TITLE_WORDS, "bold $primary"), (f"  {summary}", "$dim"),
            (f"  asking {waiting}…" if waiting else "", "$text-accent"),
        ))  # fmt: skip
        put_note(self, "#holdings-empty", Content("" if resources else self._empty()))
        put_note(self, "#holdings-reasons", Content("\n").join(self._reasons.values()))

    def _empty(self) -> str:
        if self._waiting:
            return "Waiting for the backends…"
        if not self._found:
            return f"No backend here supports {self.TITLE_WORDS.lower()}; the reasons are below."
        how = hint(self, *self.NEXT)
        return f"{self.EMPTY} {how}." if how else self.EMPTY

    # --- keys

    def action_reload(self) -> None:
        """Read the list again."""
        self.reload()

    def action_copy_command(self) -> None:
        """Show the equivalent commands, and copy the chosen one."""
        self.app.run_worker(self._copy_command())

    async def _copy_command(self) -> None:
        found = MenuScreen(f"Copy a command for {self.TITLE_WORDS.lower()}", self.commands())
        if command := await self.app.push_screen_wait(found):
            self.app.copy_to_clipboard(command)
            self.notify(f"Copied: {command}")
