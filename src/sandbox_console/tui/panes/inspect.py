"""The provider's own description of a sandbox, as a tree that is searched, or as raw JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import msgspec
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.widgets import ContentSwitcher, Input, Static, TextArea, Tree
from textual.widgets.tree import TreeNode

from sandbox_console.errors import ConsoleError, Unsupported
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.keymap import hint, key_of
from sandbox_console.tui.panes.look import Look
from sandbox_console.tui.safety import plain, plain_text
from sandbox_console.tui.scopes import scoped
from sandbox_console.tui.showing import put_note

MOST = 20_000
"""Nodes that are shown: a guest's labels may be without end."""


class InspectPane(Vertical):
    """``/`` searches, ``n`` and ``N`` go from match to match, ``r`` shows it raw, ``R`` asks anew."""

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
    BINDINGS: ClassVar[list[BindingType]] = scoped(
        "inspect",
        [
            Binding("slash", "ask_search", "Search"),
            Binding("n", "next(1)", "Next match", show=False),
            Binding("N", "next(-1)", "Previous match", show=False),
            Binding("r", "raw", "Raw or tree"),
            Binding("R", "again", "Ask anew", show=False),
        ],
    )

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._shown: Sandbox | None = None
        self._matches: list[TreeNode[str]] = []
        self._at = -1

    def compose(self) -> ComposeResult:
        yield Static(id="inspect-note")
        with ContentSwitcher(initial="inspect-tree"):
            yield Tree[str](Text(""), id="inspect-tree")
            yield TextArea(read_only=True, show_line_numbers=False, soft_wrap=False, id="inspect-raw")
        search = Input(id="inspect-search", placeholder="text of a key or a value")
        search.border_title = "Search"
        yield search

    def show(self, look: Look) -> None:
        """Ask about a sandbox; again when it has changed."""
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
            note = f"{error.message}. What the console knows stands here."
            data = msgspec.to_builtins(sandbox, enc_hook=str)
        except ConsoleError as error:
            note = f"✕ {error.message}"
        put_note(self, "#inspect-note", plain(note))
        for tree in self.query("#inspect-tree").results(Tree):
            fill(tree, data, hint(self, "inspect-raw-or-tree", "shows all"))
        text = json.dumps(data, indent=2, ensure_ascii=False, default=str)
        for area in self.query(TextArea):
            area.text = "\n".join(clean(line) for line in text.split("\n"))
        self._matches, self._at = [], -1

    @property
    def _tree(self) -> Tree[str]:
        return self.query_one("#inspect-tree", Tree)

    def focus_inside(self) -> None:
        """Give the keys to what is shown."""
        shown = self.query_one(ContentSwitcher).visible_content
        if shown is not None:
            shown.focus()

    def action_raw(self) -> None:
        """JSON as it is, or the tree."""
        switcher = self.query_one(ContentSwitcher)
        switcher.current = "inspect-tree" if switcher.current == "inspect-raw" else "inspect-raw"
        self.focus_inside()

    def action_again(self) -> None:
        """Ask the backend anew."""
        if self._shown is not None:
            self.run_worker(self._load(self._shown), exclusive=True, group="inspect")

    def action_ask_search(self) -> None:
        """Type what to look for."""
        self.query_one(ContentSwitcher).current = "inspect-tree"
        search = self.query_one(Input)
        search.border_subtitle = "Enter goes to it, Esc leaves"
        self.screen.set_focus(search.add_class("-asking"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        wanted = event.value.casefold()
        self._matches = [node for node in _nodes(self._tree.root) if wanted and wanted in (node.data or "").casefold()]
        self._at = -1
        if self._matches:
            self._close()
            self.action_next(1)
            onward = [key_of(self, f"inspect-{to}-match") for to in ("next", "previous")]
            self.notify(f"{len(self._matches)} found; {' and '.join(filter(None, onward)) or 'no key'} go on.")
        elif wanted:
            event.input.border_subtitle = "not found"

    def on_key(self, event: Key) -> None:
        if event.key == "escape" and self.query_one(Input).has_focus:
            event.stop()
            self._close()

    def _close(self) -> None:
        self.query_one(Input).remove_class("-asking")
        self.focus_inside()

    def action_next(self, step: int) -> None:
        """Go to the next match, round the end."""
        if not self._matches:
            return
        self._at = (self._at + step) % len(self._matches)
        node = self._matches[self._at]
        parent = node.parent
        while parent is not None:
            parent.expand()
            parent = parent.parent
        self.call_after_refresh(self._tree.move_cursor, node)


def fill(tree: Tree[str], data: Mapping[str, Any], shows_all: str = "") -> None:
    """Put nested data into a tree; each label is cleaned text without markup. ``shows_all``: the hint of what does."""
    tree.clear()
    tree.show_root = False
    left = [MOST]
    for key, value in data.items():
        _add(tree.root, str(key), value, left)
    if left[0] <= 0:
        tree.root.add_leaf(plain_text(f"… more than {MOST:,} lines{f'; {shows_all}' if shows_all else ''}"), data="")
    tree.root.expand()


def _add(parent: TreeNode[str], key: str, value: object, left: list[int]) -> None:
    left[0] -= 1
    if left[0] <= 0:
        return
    if isinstance(value, Mapping) and value:
        inner = [(str(name), item) for name, item in value.items()]
    elif isinstance(value, (list, tuple)) and value:
        inner = [(str(at), item) for at, item in enumerate(value)]
    else:
        shown = value if isinstance(value, str) else json.dumps(value, default=str)
        parent.add_leaf(_label(key, shown), data=f"{key} {shown}")
        return
    sign = f"{{{len(inner)}}}" if isinstance(value, Mapping) else f"[{len(inner)}]"
    node = parent.add(_label(key, sign), data=key, expand=len(inner) <= 8)
    for name, item in inner:
        _add(node, name, item, left)


def _label(key: str, value: str) -> Text:
    text = plain_text(clean(key, cap=200), "bold")
    return text.append("  ").append(clean(value.replace("\n", "⏎"), cap=1000), "not bold")


def _nodes(node: TreeNode[str]) -> Iterator[TreeNode[str]]:
    for child in node.children:
        yield child
        yield from _nodes(child)
