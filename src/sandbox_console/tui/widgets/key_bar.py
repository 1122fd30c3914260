"""The line of keys at the foot of a page."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey


class KeyBar(Footer):
    """Textual's footer, compact, made anew only where what it says changes.

    A page's bindings are announced six times while it starts and at every move of the focus; nine widgets made anew
    and styled twice each time were 30 ms of the first paint.
    """

    DEFAULT_CSS = "KeyBar.-compact FooterKey.-command-palette { margin-right: 0; padding-right: 1; }"

    def __init__(self) -> None:
        super().__init__(compact=True)
        self._said: Sequence[object] = ()

    def compose(self) -> ComposeResult:
        for one in super().compose():
            if isinstance(one, FooterKey):
                one.set_class(True, "-compact", update=False)  # or each is styled again for it once it is there
            yield one

    async def recompose(self) -> None:
        # Asked here, not when the change is announced: between the two the keys may be others again.
        if not self.is_attached:  # its page was left meanwhile
            return
        said = [
            (binding.key, binding.description, enabled, tooltip)
            for _, binding, enabled, tooltip in self.screen.active_bindings.values()
            if binding.show
        ]
        if said != self._said:
            self._said = said
            await super().recompose()
