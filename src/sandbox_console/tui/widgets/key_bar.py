"""The line of keys at the bottom of a page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

_HELP = "app.help"
"""The action that shows all keys, so its key stays if not all fit."""
_PALETTE = "-command-palette"
_PALETTE_EDGE = 2


class KeyBar(Footer):
    """Textual's footer, compact, and recreated only if its contents change. Keys that do not fit are left out.

    A page's bindings are announced six times while it starts, and whenever the focus moves. Recreating nine widgets
    and styling them twice each time took 30 ms of the first paint.
    """

    DEFAULT_CSS = "KeyBar.-compact FooterKey.-command-palette { margin-right: 0; padding-right: 1; }"

    def __init__(self) -> None:
        super().__init__(compact=True)
        self._shown: Sequence[object] = ()

    def compose(self) -> ComposeResult:
        widgets = list(super().compose())
        fitting = self._fitting([widget for widget in widgets if isinstance(widget, FooterKey)])
        for widget in widgets:
            if isinstance(widget, FooterKey):
                if widget not in fitting:
                    continue
                widget.set_class(True, "-compact", update=False)  # otherwise each is styled again for it after mounting
            yield widget

    def _fitting(self, keys: Sequence[FooterKey]) -> set[FooterKey]:
        """Return the keys that fit. The last ones are left out first, help never. A cut-off key could not be read."""
        left = self.app.size.width + 1  # the blank after the last one needs no room
        left -= sum(_cells(key) for key in keys if key.has_class(_PALETTE) or key.action == _HELP)
        kept: set[FooterKey] = set()
        for key in keys:
            always = key.has_class(_PALETTE) or key.action == _HELP
            left -= 0 if always else _cells(key)
            if always or left >= 0:
                kept.add(key)
        return kept

    async def on_resize(self) -> None:
        if self._shown:
            await self.recompose()

    async def recompose(self) -> None:
        # Read here, not when the change is announced: the keys may have changed again in between.
        if not self.is_attached:  # its page was left in the meantime
            return
        shown: list[object] = [
            (binding.key, binding.description, enabled, tooltip)
            for _, binding, enabled, tooltip in self.screen.active_bindings.values()
            if binding.show
        ]
        shown.append(self.app.size.width)
        if shown != self._shown:
            self._shown = shown
            await super().recompose()


def _cells(key: FooterKey) -> int:
    """Return the width of a key, with the blanks between key and words and after them."""
    edge = _PALETTE_EDGE if key.has_class(_PALETTE) else 1
    return cell_len(key.key_display) + 1 + cell_len(key.description) + edge
