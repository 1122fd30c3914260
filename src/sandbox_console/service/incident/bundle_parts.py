"""Collects the parts of a bundle about one sandbox. A part that cannot be read is listed as missing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from json.encoder import encode_basestring_ascii
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from sandbox_console.errors import ConsoleError
from sandbox_console.model.bundle import Absent, Bundled
from sandbox_console.model.log import LogGap, LogItem, LogQuery
from sandbox_console.model.recording import Check, Recording
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.secrets.redactor import TALLY, Tally
from sandbox_console.service.console import Console
from sandbox_console.service.gate.operation import Fetch
from sandbox_console.service.gate.redaction import masked
from sandbox_console.service.incident.bundle_file import Lines, Pack, WriteFailed, text
from sandbox_console.service.incident.bundle_files import changed_files
from sandbox_console.service.incident.cause import cause
from sandbox_console.service.incident.timeline import Span, timeline

T = TypeVar("T")
PART_S, SLOW_S = 30.0, 5.0
"""How long a part may take, in seconds: normally, and for a sandbox that was too slow before."""
_SAMPLES, _SAMPLE_S = 3, 0.5
_LEFT_OUT = "[left out]"


class CollectOptions(Struct, frozen=True):
    """What to collect: until when, changed files up to which size, and the existing recordings."""

    until: float
    files_most: int
    recordings: Sequence[Recording] = ()


class Collector:
    """Writes one sandbox's parts into a bundle's file."""

    def __init__(
        self, console: Console, sandbox: Sandbox, folder: str, pack: Pack, order: CollectOptions, fetch: Fetch
    ) -> None:
        self._console, self._sandbox, self._folder = console, sandbox, folder
        self._pack, self._order, self._fetch = pack, order, fetch
        self._missing: list[Absent] = []
        self._tally = Tally()
        self._patience_s = PART_S
        self._withheld = 0

    async def run(self) -> Bundled:
        """Write all parts. Raises WriteFailed."""
        token = TALLY.set(self._tally)
        try:
            for name, part in self._parts():
                await self._try(name, part)
        finally:
            TALLY.reset(token)
        sandbox = self._sandbox
        mask = await self._console.inside.mask(sandbox.ref)
        return Bundled(mask(sandbox.name), str(sandbox.ref), self._folder, tuple(self._missing), self._withheld)

    def details(self, since: int) -> dict[str, Any]:
        """The details for the row's end: the parts from number ``since`` on, with one hash over all of them."""
        parts = self._pack.parts[since:]
        record = [msgspec.to_builtins(one) for one in parts]
        return {
            "parts": len(parts), "bytes": sum(one.bytes for one in parts),
            "redacted": sum(one.redacted for one in parts), "missing": [one.part for one in self._missing],
            "sha256": hashlib.sha256(text(record)).hexdigest(),
        }  # fmt: skip

    def _parts(self) -> Iterable[tuple[str, Callable[[], Awaitable[None]]]]:
        return (
            ("sandbox", self._described), ("why", self._why), ("timeline", self._timeline), ("logs", self._logs),
            ("events", self._events), ("egress-rules", self._rules), ("egress", self._egress),
            ("processes", self._processes), ("samples", self._samples), ("inspect", self._inspect),
            ("changes", self._changes), ("workspace", self._workspace), ("recordings", self._recordings),
        )  # fmt: skip

    async def _try(self, name: str, part: Callable[[], Awaitable[None]]) -> None:
        self._tally.take()
        try:
            await part()
        except WriteFailed:
            raise
        except TimeoutError:
            self._absent(name, f"no answer within {self._patience_s:g} s")
            self._patience_s = SLOW_S
        except ConsoleError as error:
            self._absent(name, error.message)

    def _absent(self, part: str, reason: str) -> None:
        self._missing.append(Absent(part, reason))

    async def _described(self) -> None:
        """Write the sandbox as its backend reports it, and its spec, without the values of variables."""
        mask = await self._within(self._console.inside.mask(self._sandbox.ref))
        record = msgspec.to_builtins(self._sandbox)
        spec = self._sandbox.spec.to_dict() if self._sandbox.spec else None
        for one in (record.get("spec"), spec):
            if one and one.get("env"):
                self._withheld = len(one["env"])
                one["env"] = dict.fromkeys(one["env"], _LEFT_OUT)
        await self._json("sandbox.json", masked(record, mask))
        if spec is None:
            self._absent("spec", "another tool made it")
        else:
            await self._json("spec.json", masked(spec, mask))

    async def _why(self) -> None:
        await self._json("why.json", (await self._within(cause(self._console, self._sandbox))).as_dict())

    async def _timeline(self) -> None:
        span = Span(until=self._order.until)
        found = await self._within(timeline(self._console, [self._sandbox], span))
        await self._list(
            "timeline", [*(one.as_dict() for one in found.moments), *(one.as_dict() for one in found.missing)]
        )

    async def _logs(self) -> None:
        query = LogQuery(until=self._order.until)
        lines = self._lines("logs")
        try:
            async for batch in self._patiently(self._console.logs(self._sandbox.ref, query)):
                await asyncio.to_thread(lines.put, map(log_line, batch))
        finally:
            await asyncio.to_thread(lines.flush)
        if not lines.count:
            self._absent("logs", "it has written nothing, or nothing is kept")

    async def _events(self) -> None:
        events = self._console.inside.guest_events(self._sandbox.ref)
        await self._listed("events", events, lambda event: event.at < self._order.until)

    async def _rules(self) -> None:
        self._need_egress()
        state = await self._within(self._console.egress.state(self._sandbox.ref))
        await self._json("egress-rules.json", msgspec.to_builtins(state))

    async def _egress(self) -> None:
        self._need_egress()
        records = self._console.egress.records(self._sandbox.ref)
        await self._listed("egress", records, lambda record: record.at < self._order.until)

    def _need_egress(self) -> None:
        if self._sandbox.spec is not None and not self._sandbox.spec.egress:
            raise ConsoleError("it has no network")

    async def _processes(self) -> None:
        processes = await self._within(self._console.inside.processes(self._sandbox.ref))
        await self._list("processes", [msgspec.to_builtins(process) for process in processes])

    async def _samples(self) -> None:
        if self._sandbox.status is not Status.RUNNING:
            raise ConsoleError(f"it is {self._sandbox.status}")
        found: list[Any] = []
        async for stats in self._patiently(self._console.stats(self._sandbox.ref, _SAMPLE_S)):
            found.append(msgspec.to_builtins(stats))
            if len(found) == _SAMPLES:
                break
        await self._list("samples", found)

    async def _inspect(self) -> None:
        await self._json("inspect.json", await self._within(self._console.inside.raw(self._sandbox.ref)))

    async def _changes(self) -> None:
        changes = await self._within(self._console.inside.changes(self._sandbox.ref))
        redactor = await self._console.inside.redactor(self._sandbox.ref)
        lines = self._lines("changes")
        async for record, content in changed_files(changes, self._fetch, redactor, self._order.files_most, PART_S):
            if content is not None:
                record["part"] = f"{self._folder}/files/{record['number']:06d}"
                await asyncio.to_thread(self._pack.add, record["part"], content, self._tally.take())
            del record["number"]
            await asyncio.to_thread(lines.put, [text(record)])
        await asyncio.to_thread(lines.flush)

    async def _workspace(self) -> None:
        if self._sandbox.spec is not None and self._sandbox.spec.workspace:
            raise ConsoleError("it is a folder of the host, which the bundle does not copy")

    async def _recordings(self) -> None:
        index: list[Any] = []
        for recording in self._order.recordings:
            if recording.ref != self._sandbox.ref or recording.at >= self._order.until:
                continue
            if recording.problem or recording.check is Check.UNENDED:
                self._absent(
                    f"recording {recording.id}",
                    recording.problem or "its shell has not ended, so its secrets are not masked",
                )
                continue
            part = f"{self._folder}/recordings/{len(index) + 1:06d}.cast"
            await asyncio.to_thread(self._recording, recording, part)
            index.append(
                {"part": part}
                | {name: value for name, value in msgspec.to_builtins(recording).items() if name != "ref"}
            )
        await self._list("recordings", index)

    def _recording(self, recording: Recording, part: str) -> None:
        try:
            with self._console.recordings.path(recording.id).open("rb") as file:
                self._pack.stream(part, recording.size_bytes, iter(lambda: file.read(1 << 20), b""))
        except OSError as error:
            raise ConsoleError(f"it cannot be read: {error.strerror}") from error

    # How a part is written

    async def _json(self, name: str, value: Any) -> None:
        await asyncio.to_thread(self._pack.add, f"{self._folder}/{name}", text(value, indent=2), self._tally.take())

    def _lines(self, name: str) -> Lines:
        return Lines(self._pack, f"{self._folder}/{name}", self._tally)

    async def _list(self, name: str, values: Iterable[Any]) -> None:
        lines = self._lines(name)
        await asyncio.to_thread(lines.put, [text(one) for one in values])
        await asyncio.to_thread(lines.flush)

    async def _listed(self, name: str, source: AsyncIterator[T], wanted: Callable[[T], bool]) -> None:
        lines = self._lines(name)
        try:
            async for one in self._patiently(source):
                if wanted(one):
                    lines.put([text(msgspec.to_builtins(one))])
        finally:
            await asyncio.to_thread(lines.flush)

    async def _within(self, work: Awaitable[T]) -> T:
        async with asyncio.timeout(self._patience_s):
            return await work

    async def _patiently(self, source: AsyncIterator[T]) -> AsyncIterator[T]:
        """Yield each item as it arrives. Raises TimeoutError if the next one takes too long."""
        async with aclosing(source) as items:  # type: ignore[type-var]
            while True:
                try:
                    async with asyncio.timeout(self._patience_s):
                        item = await anext(items)
                except StopAsyncIteration:
                    return
                yield item


def log_line(item: LogItem) -> bytes:
    """A line of a log as ``logs --json`` prints it, without the sandbox."""
    if isinstance(item, LogGap):
        return text({"at_ns": item.at_ns, "gap": item.reason, "lines": item.lines})
    partial = "" if item.data.endswith(b"\n") else ',"partial":true'
    try:
        data = encode_basestring_ascii(item.data.decode()).replace("\x7f", "\\u007f")
    except UnicodeDecodeError:
        import base64

        record = {"at_ns": item.at_ns, "data_b64": base64.b64encode(item.data).decode(), "stream": str(item.stream)}
        return text(record | ({"partial": True} if partial else {}))
    return f'{{"at_ns":{item.at_ns},"data":{data}{partial},"stream":"{item.stream}"}}\n'.encode()
