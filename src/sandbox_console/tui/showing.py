"""Texts put on widgets by tasks that may outlive them."""

from __future__ import annotations

from textual.content import Content
from textual.dom import DOMNode
from textual.widgets import Static


def put(node: DOMNode, selector: str, content: Content) -> None:
    """Show a text on the Static that the selector names; nothing where it is gone, as while a screen closes."""
    for line in node.query(selector).results(Static):
        line.update(content)


def put_note(node: DOMNode, selector: str, content: Content) -> None:
    """The same for a line that is there only while it says something."""
    put(node, selector, content)
    for line in node.query(selector):
        line.set_class(bool(content.plain), "-on")
