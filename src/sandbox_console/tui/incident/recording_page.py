"""A recorded shell as text, at the second at which something happened."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import TextArea

from sandbox_console.model.recording import Recording
from sandbox_console.model.text import clean
from sandbox_console.model.timeline import Moment
from sandbox_console.service import Console
from sandbox_console.tui.dialogs.long_text_screen import LongTextScreen

LINES_MOST = 20_000
_MARK, _NO_MARK = "▶ ", "  "


class RecordingPage(LongTextScreen):
    """Shows a recording from the line that was written at a time."""

    def __init__(self, title: str, content: Content, line: int) -> None:
        super().__init__(title, content)
        self._line = line

    def on_mount(self) -> None:
        """Scroll to the line."""
        self.call_after_refresh(self.query_one(TextArea).move_cursor, (self._line, 0), center=True)


async def recording_page(console: Console, moment: Moment) -> RecordingPage | None:
    """The page of the shell that was recorded at a moment, or None if there is none. Raises ConsoleError."""
    recording = next((one for one in await console.recordings.list() if _covers(one, moment)), None)
    if recording is None:
        return None
    lines: list[tuple[float, str]] = []
    async for line in console.recordings.text(recording.id):
        lines.append((line.began, line.text))
        if len(lines) >= LINES_MOST:
            break
    second = moment.at - recording.at
    at = max((number for number, (begun, _) in enumerate(lines) if begun <= second), default=0)
    text = [
        f"{_MARK if number == at else _NO_MARK}{begun:8.1f}s  {clean(line, cap=1000)}"
        for number, (begun, line) in enumerate(lines)
    ]
    title = f"Recording {clean(recording.id, cap=60)} at {max(0.0, second):.1f} s"
    return RecordingPage(title, Content("\n".join(text) or "It is empty."), at)


def _covers(recording: Recording, moment: Moment) -> bool:
    """Whether a recording was going on. A shell's row in the audit log is a moment before its recording."""
    mine = recording.audit_id == moment.seq if moment.seq is not None else False
    during = recording.at - 1 <= moment.at <= recording.at + recording.duration_s + 1
    return recording.ref == moment.ref and not recording.problem and (mine or during)
