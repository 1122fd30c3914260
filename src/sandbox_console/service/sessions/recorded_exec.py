"""Records a command that runs without a terminal: what it wrote, as it was shown."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Exec, Permit
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.log import Stream
from sandbox_console.recording.writer import Writer
from sandbox_console.secrets.control_strings import LineFeeds
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.gate import Request
from sandbox_console.service.reads.recordings import Recordings, not_recorded

Note = Callable[[Mapping[str, Any]], Awaitable[None]]


class RecordedExec:
    """The recording of one command. Both of its streams are in it, in the order in which they arrived."""

    def __init__(self, writer: Writer, recordings: Recordings, note: Note, *, required: bool) -> None:
        self.id = writer.path.stem
        self._writer, self._recordings, self._note, self._required = writer, recordings, note, required
        self._at_return: dict[Stream, bool] = {}
        self._line_feeds = LineFeeds()  # of both streams: a player shows them on one screen

    @classmethod
    async def begin(
        cls, request: Request, permit: Permit, recordings: Recordings, audit_log: AuditLog
    ) -> RecordedExec | None:
        """Begin it if one is wanted, else None. Raises ConsoleError if it is required but not possible."""
        action = request.action
        if not isinstance(action, Exec) or not recordings.wanted(action):
            return None
        entry = await audit_log.entry(permit.audit_id)  # its words are masked as the log's are
        words = [str(word) for word in entry.attempt.body.get("argv", ())]
        name = request.target.name if request.target else ""
        writer = await recordings.begin(action, name, permit.audit_id, words)

        async def note(body: Mapping[str, Any]) -> None:
            await (await audit_log.journal()).note(permit, request.backend, str(action.ref), body)

        return None if writer is None else cls(writer, recordings, note, required=recordings.required(action))

    async def shown(self, stream: Stream, data: bytes) -> None:
        """Record output. Raises ConsoleError, which ends the command, if it must be recorded and cannot be."""
        if self._writer.problem:
            return
        try:
            await self._writer.output(self._line_feeds.feed(self._as_on_a_terminal(stream, data)))
        except OSError as error:
            if self._required:
                raise not_recorded(error.strerror or str(error), "command") from error

    async def end(self) -> dict[str, Any]:
        """Finish it. Returns what the audit log says about it."""
        return dict(msgspec.to_builtins(await self._recordings.end(self._writer)))

    async def note_end(self) -> None:
        """Finish it, and say so in a note: its command failed or was cancelled, so that the outcome is an error."""
        with suppress(ConsoleError):  # the error that ended the command is the one to report
            await self._note({"recording": await self.end()})

    def _as_on_a_terminal(self, stream: Stream, data: bytes) -> bytes:
        """Lines that end as a terminal needs them: a pipe has none that adds the carriage returns."""
        held, self._at_return[stream] = self._at_return.get(stream, False), data.endswith(b"\r")
        shown = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        return shown[1:] if held and shown.startswith(b"\r\n") else shown


@asynccontextmanager
async def recorded_to_its_end(recorded: RecordedExec | None) -> AsyncIterator[None]:
    """Finish the recording of a command that raises. That of one that ends is finished by the caller."""
    try:
        yield
    except BaseException:
        if recorded is not None:
            await run_to_completion(recorded.note_end())
        raise
