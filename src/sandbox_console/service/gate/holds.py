"""Stores which sandboxes are in quarantine: a file for each in the state folder, for all consoles that use it."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import structs

from sandbox_console.errors import ConsoleError
from sandbox_console.model.quarantine import Hold
from sandbox_console.model.sandbox import Sandbox, SandboxRef

REFUSED = frozenset({
    "start", "restart", "resume", "remove", "update", "rename", "exec", "shell", "attach", "forward", "upload", "fork",
    "egress",
})  # fmt: skip
"""Verbs that are denied while a sandbox is held, because they enter it, change it, or remove the evidence."""

_MOST = 1 << 20


class Holds:
    """The holds in one state folder. A file that cannot be read still holds its sandbox."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[int, int] = (0, 0)
        self._known: dict[str, Hold] = {}

    def get(self, ref: SandboxRef) -> Hold | None:
        """The hold of a sandbox; None if it is not held."""
        path = self._path(str(ref))
        return self._read(path, str(ref)) if path.exists() else None

    def put(self, hold: Hold) -> None:
        """Hold a sandbox, on disk when this returns. Raises ConsoleError."""
        path = self._path(hold.ref)
        fresh = path.with_suffix(".new")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh.unlink(missing_ok=True)
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(msgspec.json.encode(hold))
                file.flush()
                os.fsync(fd)
            fresh.rename(path)
        except OSError as error:
            raise ConsoleError(f"the quarantine cannot be kept in {self._folder}: {error.strerror}") from error

    def drop(self, ref: SandboxRef) -> None:
        """Release a sandbox from its hold. Raises ConsoleError."""
        try:
            self._path(str(ref)).unlink(missing_ok=True)
        except OSError as error:
            raise ConsoleError(f"the quarantine in {self._folder} cannot be ended: {error.strerror}") from error

    def all(self) -> dict[str, Hold]:
        """Every hold by its sandbox's ref. The folder is read only if it has changed."""
        try:
            st = self._folder.stat()
        except OSError:
            return {}
        if (now := (st.st_mtime_ns, st.st_ino)) != self._seen:
            holds = [self._read(path, "") for path in sorted(self._folder.glob("*.json"))]
            self._known, self._seen = {hold.ref: hold for hold in holds if hold is not None and hold.ref}, now
        return self._known

    def marked(self, sandbox: Sandbox) -> Sandbox:
        """The sandbox with its quarantine, for lists."""
        hold = self.all().get(str(sandbox.ref))
        if hold is None:
            return sandbox if not sandbox.quarantine else structs.replace(sandbox, quarantine="")
        return structs.replace(sandbox, quarantine=hold.label)

    def _path(self, ref: str) -> Path:
        return self._folder / f"{hashlib.sha256(ref.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"

    @staticmethod
    def _read(path: Path, ref: str) -> Hold | None:
        with suppress(FileNotFoundError):
            try:
                with path.open("rb") as file:
                    return msgspec.json.decode(file.read(_MOST), type=Hold)
            except FileNotFoundError:
                raise
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                return Hold(ref, "", "unknown", f"{path} is damaged")
        return None
