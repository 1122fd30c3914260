"""Puts text on widgets from tasks that may outlive them."""

from __future__ import annotations

from textual.content import Content
from textual.dom import DOMNode
from textual.widgets import Static


def set_text(line: Static, content: Content, *, fixed: bool = False) -> None:
    """Show a text where it is not shown already: an update lays the whole screen out again, and that takes 8 ms.

    ``fixed``: the line has one size whatever it says, so that it does not even then.
    """
    if not (isinstance(line.content, Content) and line.content.is_same(content)):
        line.update(content, layout=not fixed)


def put(node: DOMNode, selector: str, content: Content) -> None:
    """Show a text on the Static that the selector names; nothing where it is gone, as while a screen closes."""
    for line in node.query(selector).results(Static):
        set_text(line, content)


def put_note(node: DOMNode, selector: str, content: Content) -> None:
    """Put text on a line that is shown only while it says something."""
    put(node, selector, content)
    for line in node.query(selector):
        line.set_class(bool(content.plain), "-on")
