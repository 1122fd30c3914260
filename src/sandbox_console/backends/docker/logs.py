"""Follows a container's log, and continues if the stream breaks off without a reason.

It uses the engine's `logs` endpoint and never `attach`: an attached reader that stalls blocks the container itself. The
engine ends every record with a newline, even if a program's last line has none.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from sandbox_console.backends.common.backoff import Backoff
from sandbox_console.backends.docker.connection import Connection
from sandbox_console.backends.docker.failures import Refused, about
from sandbox_console.backends.docker.log_frames import BareDemuxer, Demuxer, TtySplitter
from sandbox_console.backends.docker.log_overlap import ReportedRecords
from sandbox_console.backends.docker.log_rotation import RotationCheck
from sandbox_console.backends.docker.paths import container_path, described
from sandbox_console.backends.docker.podman_dialect import is_podman
from sandbox_console.backends.docker.podman_logs import PodmanDemuxer, PodmanTtySplitter
from sandbox_console.backends.docker.raw_http import blocks
from sandbox_console.errors import BackendUnreachable, NotFound, Unsupported
from sandbox_console.model.log import LogGap, LogItem, LogQuery, LogRecord

RESTART_S = 1.5
"""How long a followed container that has ended may take to run again. An engine starts one in 0.5 s."""

_LOOKS = 5
_JOINED = 256 * 1024

Splitter = TtySplitter | BareDemuxer | Demuxer | PodmanDemuxer | PodmanTtySplitter

OVERLAP_NS = 10**9
"""How far before the last record a reconnect starts, as the two streams are not in order with each other."""


async def read(connection: Connection, id: str, query: LogQuery) -> AsyncGenerator[Sequence[LogItem], None]:
    """Batches of records, with a LogGap where some may be missing. Raises NotFound, Unsupported, BackendUnreachable."""
    reader = _Reader(connection, id, query)
    with about(described(id)):
        await reader.prepare()
    backoff = Backoff()
    while True:
        broken = False
        backoff.begin()
        try:
            async with aclosing(reader.once(follow=query.follow)) as batches:
                async for batch in batches:
                    yield batch
        except BackendUnreachable:
            if not query.follow:
                raise
            broken = True
        if not query.follow or reader.past_until():
            return
        running = await reader.running_again()
        if running is not None:
            reader.resume(broken=broken)
        if not running:
            break
        await backoff.wait()
    if running is not None:
        async with aclosing(reader.once(follow=False)) as batches:
            async for batch in batches:
                yield batch


class _Reader:
    """Reads the log for one query, over as many connections as it takes."""

    def __init__(self, connection: Connection, id: str, query: LogQuery) -> None:
        self._connection = connection
        self._id = id
        self._query = query
        self._seen = ReportedRecords()
        self._tty = False
        self._bare = False
        self._gap = ""
        self._again = False
        self._opened = False
        self._rotation: RotationCheck | None = None

    async def prepare(self) -> None:
        found = await self._inspect()
        self._tty = bool(found["Config"].get("Tty"))
        log_config = found["HostConfig"].get("LogConfig") or {}
        driver = log_config.get("Type")
        whole = self._query.since is None and self._query.tail is None and not self._query.follow
        if whole and not is_podman(self._connection.info):
            self._rotation = RotationCheck(log_config)
        # A timestamp of 31 bytes on each line costs the engine a sixth of its time.
        self._bare = self._joined and not self._tty and driver == "json-file" and not is_podman(self._connection.info)

    @property
    def _joined(self) -> bool:
        """Whether the bytes are only passed on, so that lines need not be separate."""
        return not self._query.follow and not self._query.lines

    def past_until(self) -> bool:
        return self._query.until is not None and time.time() >= self._query.until

    def resume(self, *, broken: bool) -> None:
        """The next reading begins a little before the last record."""
        if self._seen.last_ns:
            self._again = True
            self._gap = "the connection to the engine broke; lines may be missing" if broken else ""
            self._seen.replay()

    async def running(self) -> bool | None:
        """Whether the container is running; None if it is gone. Waits for an engine that does not answer."""
        backoff = Backoff()
        while True:
            try:
                with about("the container"):
                    return bool((await self._inspect())["State"]["Running"])
            except NotFound:
                return None
            except BackendUnreachable:
                await backoff.wait()

    async def running_again(self) -> bool | None:
        """Like ``running``, but waits for a container that may be restarting, by itself or with its engine."""
        for _ in range(_LOOKS):
            if (running := await self.running()) is not False:
                return running
            await asyncio.sleep(RESTART_S / _LOOKS)
        return await self.running()

    async def once(self, *, follow: bool) -> AsyncGenerator[Sequence[LogItem], None]:
        """The new records of one reading."""
        splitter = self._splitter()
        once, joined = not self._query.follow, self._joined
        feed = splitter.feed_joined if joined and isinstance(splitter, Demuxer) else splitter.feed
        yielded = list if once else self._new_items
        try:
            engine = await self._connection.engine()
            ask = engine.bulk if once else engine.stream
            async with ask(container_path(self._id, "logs"), self._params(follow)) as chunks:
                self._opened = True
                async for chunk in blocks(chunks, _JOINED) if joined else chunks:
                    records = feed(chunk)
                    if self._rotation is not None:
                        self._rotation.feed(chunk, records)
                    if items := yielded(records):
                        yield items
                if items := yielded(splitter.flush()):
                    yield items
                if self._rotation is not None and (gaps := self._rotation.gaps()):
                    yield gaps
        except Refused as error:
            failure = _refused(described(self._id), error)
            if isinstance(failure, NotFound) and self._opened and self._query.follow:
                return  # removed while it was followed
            raise failure from error

    def _splitter(self) -> Splitter:
        if is_podman(self._connection.info):
            return PodmanTtySplitter() if self._tty else PodmanDemuxer()
        return TtySplitter() if self._tty else BareDemuxer() if self._bare else Demuxer()

    def _new_items(self, records: list[LogRecord]) -> list[LogItem]:
        last_ns = self._seen.last_ns
        fresh = self._seen.new(records)
        if not fresh or not self._again:
            return [*fresh]
        self._again = False
        gap = self._gap or ("" if self._seen.overlap else "the engine's log was cut while it was not read")
        self._seen.live()
        if not gap:
            return [*fresh]
        at = longest_silence(last_ns, fresh) if self._gap else 0
        return [*fresh[:at], LogGap(fresh[at].at_ns, gap), *fresh[at:]]

    def _params(self, follow: bool) -> dict[str, str | int]:
        made: dict[str, str | int] = {"stdout": 1, "stderr": 1, "follow": int(follow)}
        made["timestamps"] = int(not self._bare)
        query = self._query
        if query.until is not None:
            made["until"] = f"{query.until:.9f}"
        if self._again:
            since = self._seen.last_ns - OVERLAP_NS
            return made | {"tail": "all", "since": f"{since // 10**9}.{since % 10**9:09d}"}
        if query.since is not None:
            made["since"] = f"{query.since:.9f}"
        return made | {"tail": "all" if query.tail is None else str(query.tail)}

    async def _inspect(self) -> dict[str, Any]:
        engine = await self._connection.engine()
        found: dict[str, Any] = await engine.call("GET", container_path(self._id, "json"))
        return found


def longest_silence(last_ns: int, fresh: Sequence[LogRecord]) -> int:
    """The record after ``last_ns`` that follows the longest silence.

    What a dying engine had read but not yet written is missing there, and not where our reading ended.
    """
    times = [last_ns, *(record.at_ns for record in fresh)]
    return max(range(len(fresh)), key=lambda at: times[at + 1] - times[at])


def _refused(thing: str, error: Refused) -> Exception:
    if error.status == 404 or "marked for removal" in error.message:
        return NotFound(f"{thing} is not on this engine (any more)", hint="sandbox-console ls --all")
    if "logging driver" in error.message:
        return Unsupported(
            f"this container's output cannot be read back: {error.message}",
            hint="its log driver sends it elsewhere; look there",
        )
    return error
