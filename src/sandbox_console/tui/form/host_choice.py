"""A dialog in which egress patterns are chosen: from presets, or from what sandboxes were denied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.form.entry_list import Entry, EntryList


class HostChoice(ModalScreen[tuple[str, ...]]):
    """Returns the patterns of the ticked entries; without a tick, those of the entry under the cursor.

    ``offered`` are entries with the patterns that each adds. ``note`` is shown above them, or in their place.
    """

    DEFAULT_CSS = """
    HostChoice { align: center middle; background: $background 60%; }
    HostChoice > Vertical {
        width: 92; max-width: 96%; height: auto; max-height: 90%; background: $surface; border: round $primary;
        padding: 0 1; border-title-color: $primary; border-subtitle-color: $text-muted;
    }
    HostChoice EntryList { background: $surface; max-height: 60vh; margin: 0 0 1 0; }
    HostChoice #told { height: auto; color: $text-muted; margin-bottom: 1; }
    HostChoice Horizontal { height: 1; align-horizontal: right; }
    HostChoice Button { margin-left: 2; min-width: 12; height: 1; border: none; line-pad: 1; }
    """
    AUTO_FOCUS = "EntryList, #cancel"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(())", "Cancel"),
        Binding("enter,ctrl+s", "add", "Add", priority=True),
    ]

    def __init__(self, title: str, note: str, offered: Sequence[tuple[Entry, Sequence[str]]]) -> None:
        super().__init__()
        self._title = title
        self._note = note
        self._offered = offered
        self._ticked: set[int] = set()

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(self._title)
            box.border_subtitle = Content("Space ticks, Enter adds, Esc leaves")
            yield Static(plain(self._note), id="told", markup=False)
            yield EntryList(id="offered")
            with Horizontal():
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Add", id="add", variant="primary", compact=True, disabled=not self._offered)

    def on_mount(self) -> None:
        self._show()

    def _show(self) -> None:
        shown = [entry._replace(ticked=at in self._ticked) for at, (entry, _) in enumerate(self._offered)]
        self.query_one(EntryList).show(shown)

    @on(EntryList.Ticked)
    def _tick(self, event: EntryList.Ticked) -> None:
        self._ticked ^= {event.index}
        self._show()

    @on(Button.Pressed)
    async def _answered(self, event: Button.Pressed) -> None:
        if event.button.id == "add":
            self._add()
        else:
            self.dismiss(())

    def action_add(self) -> None:
        """Add what is ticked, or press the button that has the focus."""
        if isinstance(self.focused, Button):
            self.focused.press()
        else:
            self._add()

    def _add(self) -> None:
        at = self.query_one(EntryList).highlighted
        chosen = sorted(self._ticked) or ([at] if at is not None else [])
        patterns = tuple(dict.fromkeys(pattern for one in chosen for pattern in self._offered[one][1]))
        if patterns or not chosen:
            self.dismiss(patterns)
        else:
            self.notify("Nothing to add: its hosts are not known.", severity="warning")
