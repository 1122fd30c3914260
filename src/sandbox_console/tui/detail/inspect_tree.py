"""Nested data as a tree of lines, and the state of the tree, which is restored when its data changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from msgspec import Struct
from rich.text import Text
from textual.geometry import Offset
from textual.widgets import Tree
from textual.widgets.tree import TreeNode

from sandbox_console.model.text import clean
from sandbox_console.tui.base.safety import plain_text
from sandbox_console.tui.text.form_values import BREAK

MOST = 20_000
"""The most nodes that are shown: a guest can have any number of labels."""
_OPEN = 8
"""A table of at most this many lines is initially open."""

Path = tuple[str, ...]


class Line(Struct, frozen=True):
    """A line of the tree: the keys that lead to it, and its searchable text."""

    path: Path
    text: str


class Standing(Struct, frozen=True):
    """The state of a tree: which lines are open or closed, the cursor, and the scroll position."""

    opened: Mapping[Path, bool]
    cursor: Path
    at: Offset

    @classmethod
    def of(cls, tree: Tree[Line]) -> Standing:
        """Return the current state of a tree."""
        inner = {node.data.path: node.is_expanded for node in nodes(tree.root) if node.data and node.allow_expand}
        current = tree.cursor_node
        return cls(inner, current.data.path if current and current.data else (), tree.scroll_offset)

    def restore(self, tree: Tree[Line]) -> None:
        """Restore this state to a tree, as far as its lines exist."""
        there = {node.data.path: node for node in nodes(tree.root) if node.data}
        for path, opened in self.opened.items():
            if (node := there.get(path)) is not None and node.is_expanded is not opened:
                node.toggle()
        tree.call_after_refresh(self._go, tree, there.get(self.cursor))

    def _go(self, tree: Tree[Line], node: TreeNode[Line] | None) -> None:
        if node is not None:
            tree.move_cursor(node)
        tree.scroll_to(*self.at, animate=False)


def fill(tree: Tree[Line], data: Mapping[str, object], shows_all: str = "") -> None:
    """Fill a tree with nested data, each label as cleaned text. ``shows_all`` is the hint for what shows all of it."""
    tree.clear()
    tree.show_root = False
    left = [MOST]
    for key, value in data.items():
        _add(tree.root, (), str(key), value, left)
    if left[0] <= 0:
        more = f"… more than {MOST:,} lines{f'; {shows_all}' if shows_all else ''}"
        tree.root.add_leaf(plain_text(more), data=Line(("",), ""))
    tree.root.expand()


def nodes(node: TreeNode[Line]) -> Iterator[TreeNode[Line]]:
    """Yield every line below a node, from the top."""
    for child in node.children:
        yield child
        yield from nodes(child)


def _add(parent: TreeNode[Line], above: Path, key: str, value: object, left: list[int]) -> None:
    left[0] -= 1
    if left[0] <= 0:
        return
    path = (*above, key)
    if isinstance(value, Mapping) and value:
        inner = [(str(name), item) for name, item in value.items()]
    elif isinstance(value, (list, tuple)) and value:
        inner = [(str(at), item) for at, item in enumerate(value)]
    else:
        shown = value if isinstance(value, str) else json.dumps(value, default=str)
        parent.add_leaf(_label(key, shown), data=Line(path, f"{key} {shown}"))
        return
    sign = f"{{{len(inner)}}}" if isinstance(value, Mapping) else f"[{len(inner)}]"
    node = parent.add(_label(key, sign), data=Line(path, key), expand=len(inner) <= _OPEN)
    for name, item in inner:
        _add(node, path, name, item, left)


def _label(key: str, value: str) -> Text:
    text = plain_text(clean(key, cap=200), "bold")
    return text.append("  ").append(clean(value.replace("\n", BREAK), cap=1000), "not bold")
