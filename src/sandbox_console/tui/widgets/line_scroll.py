"""Scrolls views whose number of lines changes often."""

from __future__ import annotations

from textual.geometry import Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView


class LineScroll(ScrollView):
    """A ScrollView that does not have the whole screen laid out when its number of lines changes.

    Textual's own does, as a child might be placed by it: 5 to 15 ms of a keystroke or of a tick. Lines are drawn by
    the view itself, so that only its scrollbar has to know, unless its own size goes by its content.
    """

    virtual_size: Reactive[Size] = Reactive(Size(0, 0))

    def watch_virtual_size(self, size: Size) -> None:
        self._scroll_update(size)
        if self.styles.auto_dimensions:
            self.refresh(layout=True)
