"""Lists logs of removed sandboxes: from this session, and kept on disk."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList

from sandbox_console.logs.recent_logs import RecentLog, RecentLogs
from sandbox_console.logs.store import LineStore
from sandbox_console.model.text import ascii_id, clean
from sandbox_console.service import Console
from sandbox_console.tui.text.formatting import SHORT_ID, size, span
from sandbox_console.tui.widgets.table.table_layout import fit_cell


async def gone_logs(console: Console, shelf: RecentLogs) -> list[RecentLog]:
    """Return logs of sandboxes that are gone, the most recently read first."""
    logs = shelf.gone
    refs = {log.ref for log in logs}
    for retained in await console.retained.listing():
        if retained.ref not in refs and retained.ref not in console.hub.sandboxes:
            logs.append(RecentLog(retained.ref, retained.name, LineStore(retained.size_bytes * 2), gone_at=retained.at))
    return logs


class GoneScreen(ModalScreen[RecentLog | None]):
    """Lets the user choose one of the logs, or none."""

    DEFAULT_CSS = """
    GoneScreen { align: center middle; background: $background 60%; }
    GoneScreen > Vertical {
        width: 90; max-width: 94%; height: auto; max-height: 80%; background: $surface; border: round $primary;
        border-title-color: $primary;
    }
    GoneScreen OptionList { height: auto; max-height: 100%; border: none; background: $surface; padding: 0 1; }
    GoneScreen OptionList:focus { background-tint: $foreground 0%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,p", "close", "Close")]

    def __init__(self, logs: list[RecentLog], now: float) -> None:
        super().__init__()
        self._found = logs
        self._now = now

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content("Logs of sandboxes that are gone")
            yield OptionList(*[self._line(log) for log in self._found], compact=True)

    def _line(self, log: RecentLog) -> Content:
        amount = f"{len(log.store):,} lines" if len(log.store) else f"{size(log.store.cap_bytes // 2)} on disk"
        return Content.assemble(
            (fit_cell(clean(log.name, cap=200), 30, "left"), "bold"),
            (f"  {ascii_id(log.ref.id)[:SHORT_ID]}  {clean(log.ref.backend, cap=40)}", "$dim"),
            (f"  {amount}  gone {span(self._now - (log.gone_at or self._now))} ago", ""),
        )

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._found[event.option_index])

    def action_close(self) -> None:
        """Close without choosing."""
        self.dismiss(None)
