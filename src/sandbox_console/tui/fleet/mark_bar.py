"""The line that shows how many sandboxes are marked, and the actions on them."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.widget import Widget

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.fleet.header import justified
from sandbox_console.tui.keys.keymap import hints
from sandbox_console.tui.text.formatting import STATUS
from sandbox_console.tui.widgets.table.marked_table import MARK


class MarkBar(Widget):
    """Shown under the list while something is marked."""

    DEFAULT_CSS = """
    MarkBar { height: 1; padding: 0 1; background: $warning 20%; display: none; text-wrap: nowrap; }
    MarkBar.-on { display: block; }
    """

    _marked: Sequence[Sandbox] = ()
    _hidden = 0

    def show(self, marked: Sequence[Sandbox], hidden: int) -> None:
        """Show which are marked. ``hidden`` of them have no row, as a filter or a closed group hides them."""
        self._marked, self._hidden = marked, hidden
        self.set_class(bool(marked), "-on")
        self.refresh()

    def render(self) -> Content:
        keys = hints(self, ("menu", "actions"), ("back", "unmarks"))
        return mark_words(self._marked, self._hidden, self.size.width, keys)


def mark_words(marked: Sequence[Sandbox], hidden: int, width: int, keys: str = "") -> Content:
    """Return counts by state on the left, and the keys on the right."""
    left = [(f"{MARK} {len(marked)} marked", "bold $text-warning")]
    statuses = [sandbox.status for sandbox in marked]
    for status, (glyph, _) in STATUS.items():
        if count := statuses.count(status):  # hashing 10,000 takes 5 ms
            left.append((f"  {glyph} {count} {status}", ""))
    if hidden:
        left.append((f"  {hidden} of them hidden", "$text-warning"))
    return Content.assemble(*justified(left, [(keys, "$dim")], max(20, width)))
