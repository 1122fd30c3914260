"""The provider's own description of a sandbox, as a searchable tree or as raw JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.widgets import ContentSwitcher, Input, Static, TextArea, Tree
from textual.widgets.tree import TreeNode

from sandbox_console.errors import ConsoleError, Unsupported
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put_note
from sandbox_console.tui.detail.inspect_tree import Line, Standing, fill, nodes
from sandbox_console.tui.keys.keymap import hint, key_of, no_search
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.state.fleet_state import TabState


class InspectPane(Vertical):
    """The engine's description of a sandbox.

    ``/`` searches, ``n`` and ``N`` move between matches, ``r`` shows raw JSON, ``R`` reads it again.
    """

    DEFAULT_CSS = """
    InspectPane { height: 1fr; }
    InspectPane > #inspect-note { height: auto; padding: 0 1; color: $text-muted; display: none; }
    InspectPane > #inspect-note.-on { display: block; }
    InspectPane > ContentSwitcher { height: 1fr; }
    InspectPane Tree { padding: 0 1; background: $background; scrollbar-size-vertical: 1; }
    InspectPane TextArea { border: none; padding: 0 1; scrollbar-size-vertical: 1; }
    InspectPane Tree:focus, InspectPane TextArea:focus { background-tint: transparent; }
    InspectPane TextArea { background: $background; }
    InspectPane > Input { display: none; height: 3; }
    InspectPane > Input, InspectPane > Input:focus { border: round $primary; background: $background; }
    InspectPane > Input.-asking { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["inspect"]

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._shown: Sandbox | None = None
        self._description: tuple[SandboxRef, Mapping[str, Any]] | None = None
        self._wanted = ""
        self._matches: list[TreeNode[Line]] = []
        self._at = -1

    def compose(self) -> ComposeResult:
        yield Static(id="inspect-note")
        with ContentSwitcher(initial="inspect-tree"):
            yield Tree[Line](Text(""), id="inspect-tree")
            yield TextArea(read_only=True, show_line_numbers=False, soft_wrap=False, id="inspect-raw")
        search = Input(id="inspect-search", placeholder="text of a key or a value")
        search.border_title = "Search"
        yield search

    def show(self, look: TabState) -> None:
        """Read the description of a sandbox, and read it again when the sandbox has changed."""
        sandbox, active, _ = look
        if not active or sandbox == self._shown:
            return
        self._shown = sandbox
        if sandbox is not None:
            self.run_worker(self._load(sandbox), exclusive=True, group="inspect")

    async def _load(self, sandbox: Sandbox) -> None:
        note = ""
        data: Mapping[str, Any] = {}
        try:
            data = await self._service.inside.raw(sandbox.ref)
        except Unsupported as error:
            note = f"{error.message}. What the console knows is shown here."
            data = msgspec.to_builtins(sandbox, enc_hook=str)
        except ConsoleError as error:
            note = f"✕ {error.message}"
            if self._description is not None and self._description[0] == sandbox.ref:
                data = self._description[1]  # the last description that was read
        put_note(self, "#inspect-note", plain(note))
        before, self._description = self._description, (sandbox.ref, data)
        if before != self._description and self.is_attached:
            self._draw(data, stay=before is not None and before[0] == sandbox.ref)

    def _draw(self, data: Mapping[str, Any], *, stay: bool) -> None:
        """Draw the description. ``stay`` keeps the open lines, cursor and search, for a sandbox that has changed."""
        stood = Standing.of(self._tree) if stay else None
        fill(self._tree, data, hint(self, "inspect-raw", "shows all"))
        if stood is not None:
            stood.restore(self._tree)
        self._wanted = self._wanted if stay else ""
        self._matches, self._at = self._found(), self._at if stay else -1
        self._write(json.dumps(data, indent=2, ensure_ascii=False, default=str), stay=stay)

    def _write(self, text: str, *, stay: bool) -> None:
        area = self.query_one(TextArea)
        at, cursor = area.scroll_offset, area.cursor_location
        area.text = "\n".join(map(clean, text.split("\n")))
        if stay:
            area.move_cursor(cursor)
            area.call_after_refresh(area.scroll_to, *at, animate=False)

    @property
    def _tree(self) -> Tree[Line]:
        return self.query_one("#inspect-tree", Tree)

    def focus_inside(self) -> None:
        """Focus the widget that is shown."""
        shown = self.query_one(ContentSwitcher).visible_content
        if shown is not None:
            shown.focus()

    def action_raw(self) -> None:
        """Switch between raw JSON and the tree."""
        switcher = self.query_one(ContentSwitcher)
        switcher.current = "inspect-tree" if switcher.current == "inspect-raw" else "inspect-raw"
        self.focus_inside()

    def action_again(self) -> None:
        """Read the description from the backend again."""
        if self._shown is not None:
            self.run_worker(self._load(self._shown), exclusive=True, group="inspect")

    def action_ask_search(self) -> None:
        """Open the search line."""
        self.query_one(ContentSwitcher).current = "inspect-tree"
        search = self.query_one(Input)
        search.border_subtitle = "Enter goes to it, Esc leaves"
        self.screen.set_focus(search.add_class("-asking"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._wanted = event.value.casefold()
        self._matches, self._at = self._found(), -1
        if self._matches:
            self._close()
            self.action_next(1)
            onward = [key_of(self, f"inspect-{to}-match") for to in ("next", "previous")]
            self.notify(f"{len(self._matches)} found; {' and '.join(filter(None, onward)) or 'no key'} go on.")
        elif self._wanted:
            event.input.border_subtitle = "not found"

    def _found(self) -> list[TreeNode[Line]]:
        wanted = self._wanted
        return [node for node in nodes(self._tree.root) if wanted and node.data and wanted in node.data.text.casefold()]

    def on_key(self, event: Key) -> None:
        if event.key == "escape" and self.query_one(Input).has_class("-asking"):
            event.stop()
            self._close()

    def _close(self) -> None:
        self.query_one(Input).remove_class("-asking")
        self.focus_inside()

    def action_next(self, step: int) -> None:
        """Go to the next match, wrapping around at the end."""
        if not self._matches:
            self.notify("Nothing was found." if self._wanted else no_search(self, "inspect-search"))
            return
        self._at = (self._at + step) % len(self._matches)
        node = self._matches[self._at]
        parent = node.parent
        while parent is not None:
            parent.expand()
            parent = parent.parent
        self.call_after_refresh(self._tree.move_cursor, node)
