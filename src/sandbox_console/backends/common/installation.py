"""The id of this installation. Each state directory has one, and every sandbox made from it carries it.

Another user's console, or one with another state directory, may use the same engine. Its sandboxes are not ours: what
belongs to them, such as their egress rules, is in its state directory and not in ours.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from sandbox_console.errors import BackendError
from sandbox_console.hostfs.own_files import read_own

ANOTHER = "another console"
"""The creator to show for a sandbox that carries another installation's id."""

_BYTES = 8
_MOST_BYTES = 4096
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Installation:
    """The id in a backend's folder, created with the first sandbox."""

    def __init__(self, folder: Path | None) -> None:
        self._file = folder and folder / "installation"
        self._id = ""
        self._none = secrets.token_hex(_BYTES) if folder else ""

    @property
    def id(self) -> str:
        """The id; empty if there is no folder. Before the first sandbox is made it is one that no sandbox carries."""
        if not self._id and self._file is not None:
            try:
                found = read_own(self._file, _MOST_BYTES).decode().strip()
            except (OSError, UnicodeDecodeError):
                return self._none
            self._id = found if _ID.fullmatch(found) else ""
        return self._id or self._none

    def made(self) -> str:
        """The id, created if there is none. Raises BackendError if it cannot be stored."""
        if self._file is None or self.id != self._none:
            return self.id
        part = self._file.with_name(f".installation-{secrets.token_hex(_BYTES)}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with part.open("w") as file:
                file.write(secrets.token_hex(_BYTES))
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(part, self._file)  # atomic; if two consoles do it, the first one's id is kept
            except FileExistsError:
                pass
            finally:
                part.unlink()
        except OSError as error:
            text = f"the id of this installation cannot be kept in {self._file}: {error.strerror}"
            raise BackendError(text, hint=f"see its owner and mode: ls -ld {self._file.parent}") from error
        if self.id == self._none:  # what is made now would be taken for another console's
            text = f"{self._file} is damaged: it should have the id of this installation"
            raise BackendError(text, hint="put it back, or move it away: older sandboxes are then another console's")
        return self.id
