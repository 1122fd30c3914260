"""What a console asked a server for that does not tell it back: a file of our own for each sandbox, by its id."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from sandbox_console.errors import BackendError, InvalidSpec
from sandbox_console.hostfs.own_files import NOT_OURS, read_own
from sandbox_console.model.sandbox import Exit
from sandbox_console.model.spec import SandboxSpec

_MOST_BYTES = 1 << 20


class Entry(Struct, frozen=True):
    """One sandbox. ``place`` is what the server calls it. Times are seconds since the epoch; no secret is in it."""

    id: str
    place: str
    asked: Mapping[str, Any]
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    exit: Exit | None = None
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> SandboxSpec | None:
        """What was asked for; None if it cannot be read any more."""
        try:
            return SandboxSpec.from_dict(self.asked)
        except InvalidSpec:
            return None


class Ledger:
    """The entries of one host, in a folder that is made with the first of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def every(self) -> dict[str, Entry]:
        """All entries by id. One that cannot be read is left out: its sandbox is then shown as another's."""
        return await asyncio.to_thread(self._read)

    async def put(self, entry: Entry, **changes: Any) -> Entry:
        """Store an entry with these changes. Raises BackendError."""
        changed = structs.replace(entry, **changes)
        await asyncio.to_thread(self._write, changed)
        return changed

    async def drop(self, id_: str) -> None:
        """Forget an entry. It is no error if there is none."""
        await asyncio.to_thread(self._file(id_).unlink, missing_ok=True)

    def _read(self) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        try:
            files = sorted(self._folder.glob("*.json"))
        except OSError:
            return {}
        for file in files:
            try:
                entry = msgspec.json.decode(read_own(file, _MOST_BYTES), type=Entry)
            except (OSError, *NOT_OURS):
                continue
            if self._file(entry.id) == file:
                found[entry.id] = entry
        return found

    def _write(self, entry: Entry) -> None:
        part = self._folder / f".{secrets.token_hex(8)}.part"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.encode(entry))
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._file(entry.id))
        except OSError as error:
            part.unlink(missing_ok=True)
            text = f"what is known of {entry.place} cannot be kept in {self._folder}: {error.strerror}"
            raise BackendError(text, hint=f"see its owner and mode: ls -ld {self._folder}") from error

    def _file(self, id_: str) -> Path:
        return self._folder / f"{id_.replace('/', '%2F')}.json"
