"""A drag over text for which the app has no use: a browser's page selects the text, and the app takes no click."""

from __future__ import annotations

from typing import Any

from textual import events
from textual.app import App
from textual.errors import NoWidget
from textual.geometry import Offset
from textual.scrollbar import ScrollBar
from textual.widget import Widget
from textual.widgets import Input, TextArea

_USES = (ScrollBar, Input, TextArea)
_LEAST = 2
"""Cells in a line that the mouse moves before it is a drag; the page counts the same."""


class PlainDrags:
    """Follows the mouse button. A widget that takes drags itself has a method ``drag``, or is one of Textual's."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._pressed: Offset | None = None
        vars(app)["ALLOW_SELECT"] = False  # Textual's own would be shown beside the page's

    def note(self, event: events.MouseDown | events.MouseUp) -> None:
        """Tell the page if a drag that begins here is its own, and drop the click at the end of one."""
        at = event.screen_offset
        if isinstance(event, events.MouseDown):
            free = event.button == 1 and not event.shift and self._is_free(at)
            self._pressed = at if free else None
            if free and (tell := getattr(self._app._driver, "tell_free_drag", None)) is not None:  # noqa: SLF001
                tell()
            return
        pressed, self._pressed = self._pressed, None
        if pressed is not None and (at.y != pressed.y or abs(at.x - pressed.x) >= _LEAST):
            self._app._mouse_down_widget = None  # noqa: SLF001 - has no public name

    def _is_free(self, at: Offset) -> bool:
        try:
            found, _ = self._app.get_widget_at(*at)
        except NoWidget:
            return True
        line = [node for node in found.ancestors_with_self if isinstance(node, Widget)]
        return not any(isinstance(node, _USES) or hasattr(node, "drag") for node in line)
