"""Sets the text of widgets from tasks that may outlive them."""

from __future__ import annotations

from textual.content import Content
from textual.dom import DOMNode
from textual.widgets import Static


def set_text(line: Static, content: Content, *, fixed: bool = False) -> None:
    """Show a text unless it is already shown: an update lays out the whole screen again, which takes 8 ms.

    ``fixed`` means that the line's size never changes, so that even an update does not cause a layout.
    """
    if not (isinstance(line.content, Content) and line.content.is_same(content)):
        line.update(content, layout=not fixed)


def put(node: DOMNode, selector: str, content: Content) -> None:
    """Show a text on the Static that the selector names. Does nothing if it is gone, as while a screen closes."""
    for line in node.query(selector).results(Static):
        set_text(line, content)


def put_note(node: DOMNode, selector: str, content: Content) -> None:
    """Set the text of a line that is shown only while it has text."""
    put(node, selector, content)
    for line in node.query(selector):
        line.set_class(bool(content.plain), "-on")
