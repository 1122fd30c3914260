"""Makes and reads recordings of shells and commands: masked, with their hash in the audit log."""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from sandbox_console.errors import ConsoleError, NotFound
from sandbox_console.model.access import access
from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.actor import acting
from sandbox_console.model.recording import Check, Recording, RecordingMatch
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.policy.rules import Rules
from sandbox_console.recording.cast import Event, Line, batches, last_time, lines, read_events, read_header
from sandbox_console.recording.writer import KILLED, Recorded, Writer, digest_of, finish_lost
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.config import RecordingOptions
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.reads.visible_records import VisibleRecords

Item = TypeVar("Item", Event, Line)
_MIB = 1024 * 1024
_MOST_ID = 1 << 63
_YEAR_9999 = 253_370_764_800.0


class Recordings:
    """The recordings of one state folder."""

    def __init__(
        self, folder: Path, options: RecordingOptions, rules: Callable[[], Rules], audit_log: AuditLog,
        redactor: Redactor, visible: VisibleRecords,
    ) -> None:  # fmt: skip
        self.folder = folder
        self._visible = visible
        self._options, self._rules = options, rules
        self._audit_log = audit_log
        self._redactor = redactor

    def required(self, request: OpenShell | Exec) -> bool:
        """Whether a shell or a command must not continue without its recording."""
        own = self._options.mode == "required" and request.verb in self._options.record
        return request.record or own or request.verb in self._rules().record

    def wanted(self, request: OpenShell | Exec) -> bool:
        """Whether a shell or a command should be recorded."""
        own = self._options.mode != "off" and request.verb in self._options.record
        return own or self.required(request)

    async def begin(
        self, request: OpenShell | Exec, name: str, audit_id: int, command: Sequence[str] = ()
    ) -> Writer | None:
        """Begin a recording if one is wanted, else None. Raises ConsoleError if it is required but not possible.

        ``command`` is a command's words, masked.
        """
        if not self.wanted(request):
            return None
        made = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        writer = self._writer(
            self.folder / f"{made}-{audit_id}.cast",
            request,
            {
                "timestamp": int(time.time()), "title": name,
                "sandbox": str(request.ref), "actor": acting() or self._audit_log.actor, "audit_id": audit_id,
            } | ({"command": shlex.join(command)} if command else {}),
        )  # fmt: skip
        try:
            await asyncio.to_thread(_make_room, self.folder, self._options.keep_mib * _MIB)
            await writer.begin()
        except OSError as error:
            if self.required(request):
                what = "command" if isinstance(request, Exec) else "shell"
                raise not_recorded(error.strerror or str(error), what) from error
            return None
        return writer

    def _writer(self, path: Path, request: OpenShell | Exec, header: Mapping[str, Any]) -> Writer:
        if isinstance(request, Exec):
            return Writer(
                path, {"width": 80, "height": 24, **header}, self._options.exec_max_kib * 1024, "recording.exec_max_kib"
            )
        own: dict[str, Any] = {"width": request.cols, "height": request.rows, "env": {"TERM": request.term}}
        return Writer(path, {**own, **header}, self._options.max_mib * _MIB)

    async def end(self, writer: Writer) -> Recorded:
        """Finish a recording and mask the whole file, because typed secrets arrive one character at a time."""
        return await writer.end(self._redactor.across)

    async def end_lost(self, id_: str, problem: str | None = None) -> dict[str, Any]:
        """Finish the recording of another process, for the note about its shell's end. None: it was killed."""
        try:
            path = self.path(id_)
            reason = KILLED if problem is None else problem
            return dict(msgspec.to_builtins(await asyncio.to_thread(finish_lost, path, self._redactor.across, reason)))
        except (OSError, ValueError, ConsoleError) as error:
            return {"id": id_, "problem": str(error)}

    async def list(self) -> list[Recording]:
        """All recordings of sandboxes that whoever asks may see, newest first."""
        paths = await asyncio.to_thread(lambda: sorted(self.folder.glob("*.cast"), reverse=True))
        every = [recording for path in paths if (recording := await self._recording(path)) is not None]
        return await self._visible.of_sandboxes(every, lambda recording: recording.ref)

    async def events(self, id_: str) -> AsyncIterator[Event]:
        """The events of a recording, in order. Raises NotFound."""
        async for event in _read(read_events(await self._readable(id_))):
            yield event

    async def text(self, id_: str) -> AsyncIterator[Line]:
        """A recording as lines. Raises NotFound."""
        async for line in _read(lines(read_events(await self._readable(id_)))):
            yield line

    async def search(self, wanted: str) -> AsyncIterator[RecordingMatch]:
        """The lines that contain a text, ignoring case, newest recording first."""
        for recording in await self.list():
            if not recording.problem:
                async for line in self.matches(recording.id, wanted):
                    yield RecordingMatch(recording, line.began, line.text, line.ended)

    async def matches(self, id_: str, wanted: str) -> AsyncIterator[Line]:
        """The lines of one recording that contain a text, ignoring case. Raises NotFound."""
        folded = wanted.casefold()
        path = await self._readable(id_)
        found = (line for line in lines(read_events(path)) if folded in line.text.casefold())
        async for line in _read(found):
            yield line

    async def _readable(self, id_: str) -> Path:
        path = self.path(id_)
        if access().labels and not any(recording.id == id_ for recording in await self.list()):
            raise _unknown(id_)
        return path

    def path(self, id_: str) -> Path:
        """The file of a recording, for the console's own work: no rights are checked. Raises NotFound."""
        path = self.folder / f"{id_}.cast"
        if not re.fullmatch(r"[A-Za-z0-9._-]+", id_) or not path.is_file() or path.is_symlink():
            raise _unknown(id_)
        return path

    async def _recording(self, path: Path) -> Recording | None:
        try:
            header, last = await asyncio.to_thread(lambda: (read_header(path), last_time(path)))
            size = path.stat().st_size
            audit_id, began = _place(header)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            return Recording(path.stem, "", None, "", 0.0, 0.0, 0, 0, problem=reason or type(error).__name__)
        return Recording(
            path.stem, str(header.get("title", "")), _ref(str(header.get("sandbox", ""))), str(header.get("actor", "")),
            began, last, size, audit_id, *await self._ended(path, audit_id, str(header.get("command") or "")),
        )  # fmt: skip

    async def _ended(self, path: Path, audit_id: int, command: str) -> tuple[Check, str, str, str, int | None]:
        """The last fields of a `Recording`: what the audit log says about its end."""
        kind, exit_code, check = "exec" if command else "shell", None, Check.UNENDED
        try:
            entry = await self._audit_log.entry(audit_id)
        except ConsoleError:
            return check, "", kind, command, exit_code
        for row in filter(None, (*entry.notes, entry.end)):
            told = row.body.get("recording")
            if isinstance(told, dict) and told.get("id") == path.stem:
                same = await asyncio.to_thread(digest_of, path) == told.get("sha256")
                check = Check.HOLDS if same else Check.CHANGED
                code = row.body.get("exit")
                exit_code = code if isinstance(code, int) else None
        return check, "", kind, command, exit_code


def _place(header: Mapping[str, Any]) -> tuple[int, float]:
    """The audit row of a recording and when it began. Raises ValueError, TypeError, OverflowError."""
    audit_id, began = int(header.get("audit_id") or 0), float(header.get("timestamp") or 0)
    if not (0 <= audit_id < _MOST_ID and 0 <= began < _YEAR_9999):
        raise ValueError("its time or its number in the audit log cannot be")
    return audit_id, began


def _unknown(id_: str) -> NotFound:
    return NotFound(f"no recording is called {id_!r}", hint="sandbox-console recordings ls")


def not_recorded(reason: str, activity: str = "shell") -> ConsoleError:
    """The error for a shell or a command that must be recorded but cannot be."""
    return ConsoleError(
        f"the {activity} cannot be recorded: {reason}", hint='free some space, or set recording.mode = "best-effort"'
    )


def _ref(text: str) -> SandboxRef | None:
    backend, _, rest = text.partition("/")
    host, _, id_ = rest.rpartition("/")
    return SandboxRef(backend, host, id_) if backend and host and id_ else None


async def _read(source: Iterator[Item]) -> AsyncIterator[Item]:
    """Read what blocks in a thread, some at a time."""
    groups = batches(source, lambda one: len(one[2]))
    while some := await asyncio.to_thread(next, groups, None):
        for one in some:
            yield one


def _make_room(folder: Path, cap_bytes: int) -> None:
    """Remove the oldest recordings until the rest fits."""
    paths = sorted(folder.glob("*.cast")) if folder.is_dir() else []
    sizes = {path: path.lstat().st_size for path in paths if not path.is_symlink()}
    total = sum(sizes.values())
    for path, size in sizes.items():
        if total <= cap_bytes:
            return
        path.unlink(missing_ok=True)
        total -= size
