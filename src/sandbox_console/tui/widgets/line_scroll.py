"""Scrolls views whose number of lines changes often."""

from __future__ import annotations

from textual.geometry import Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView


class LineScroll(ScrollView):
    """A ScrollView that does not cause a layout of the whole screen when its number of lines changes.

    Textual's own does, as a child's position might depend on it, which takes 5 to 15 ms of a keystroke or tick. This
    view draws its lines itself, so only its scrollbar must be updated, unless its own size depends on its content.
    """

    virtual_size: Reactive[Size] = Reactive(Size(0, 0))

    def watch_virtual_size(self, size: Size) -> None:
        self._scroll_update(size)
        if self.styles.auto_dimensions:
            self.refresh(layout=True)
