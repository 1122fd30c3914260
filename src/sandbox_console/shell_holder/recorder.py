"""Records a kept shell. Writes go straight to the file: the page cache takes them, and the holder needs no threads."""

from __future__ import annotations

from pathlib import Path

from sandbox_console.recording.cast import Mask, Pending, append, mask_file


class Recorder:
    """Continues the recording that the console began. ``problem`` says why it ended early."""

    def __init__(self, path: Path, pending: Pending, *, required: bool) -> None:
        self.path, self.required, self.problem = path, required, ""
        self._pending = pending

    def output(self, data: bytes) -> None:
        """Record what is shown."""
        self._pending.output(data)
        if self._pending.due:
            self.write()

    def resize(self, cols: int, rows: int) -> None:
        """Record a new size."""
        self._pending.resize(cols, rows)

    def write(self) -> None:
        """Write the events that wait."""
        lines = self._pending.take()
        if not lines or self.problem:
            return
        try:
            append(self.path, lines)
        except OSError as error:
            self.problem = error.strerror or str(error)

    def end(self, mask: Mask) -> str:
        """Write the rest, and mask the whole file. Returns what went wrong."""
        self._pending.output(b"", last=True)
        self.write()
        try:
            mask_file(self.path, mask)
        except (OSError, ValueError) as error:
            self.problem = self.problem or str(error)
        return self.problem
