"""Reads the log of a Pod's main container, of an init container that keeps it waiting, or of a chosen one.

The API server sends stdout and stderr as one, each line with its time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from sandbox_console.backends.kubernetes.causes import main_container, status_of
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.failures import Waiting
from sandbox_console.backends.kubernetes.finder import Finder
from sandbox_console.backends.kubernetes.inventory import Target
from sandbox_console.backends.kubernetes.objects import Pod
from sandbox_console.errors import NotFound
from sandbox_console.model.lazy_pattern import lazy_pattern
from sandbox_console.model.log import LogGap, LogItem, LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import SandboxRef, Status

POLL_S = 1.0
"""Between two looks at a container that has not started yet."""

_TOLD = 200
PIECE = 1024 * 1024
"""A longer line is returned in pieces."""

_RESTARTED = "the container was started again here; of earlier runs Kubernetes keeps the last one"
_NS = 1_000_000_000
_STAMP = lazy_pattern(r"([0-9T:-]{19})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2})")


async def read(
    cluster: Cluster, finder: Finder, ref: SandboxRef, query: LogQuery
) -> AsyncGenerator[Sequence[LogItem], None]:
    """The stored log; with ``follow``, what comes until the container ends. A suspended Sandbox has no log any more."""
    target = await finder.target(ref)
    while query.follow and _not_started(finder, target):
        await asyncio.sleep(POLL_S)
        target = await finder.target(ref)
    if (pod := target.pod) is None:
        return
    container = target.container or _spoken_for(pod)
    status = status_of(pod, container)
    earlier = status is not None and status.restart_count and status.state.running and query.tail is None
    if earlier or query.previous:
        async with aclosing(_run(cluster, pod, container, query, previous=True)) as before:
            async for items in before:
                yield items
        if query.previous:
            return
        yield [LogGap(0, _RESTARTED)]
    async with aclosing(_run(cluster, pod, container, query)) as batches:
        async for items in batches:
            yield items


def _not_started(finder: Finder, target: Target) -> bool:
    if target.pod is None:
        return finder.inventory.of(target).status in (Status.CREATED, Status.STARTING)
    status = status_of(target.pod, target.container or _spoken_for(target.pod))
    return status is None or not (status.state.running or status.state.terminated or status.last_state.terminated)


def _spoken_for(pod: Pod) -> str:
    """The container whose log is shown if none is chosen."""
    main = main_container(pod)
    return _waiting_init(pod) or (main.name if main else "")


def _waiting_init(pod: Pod) -> str | None:
    """The init container whose log tells why the main one does not start."""
    for one in pod.status.init_container_statuses or ():
        ended = one.state.terminated or one.last_state.terminated
        if ended is not None and ended.exit_code != 0:
            return one.name
    return None


async def _run(
    cluster: Cluster, pod: Pod, container: str, query: LogQuery, *, previous: bool = False
) -> AsyncGenerator[list[LogItem], None]:
    path = await cluster.core("pods", pod.metadata.name, namespace=pod.metadata.namespace, sub="log")
    request = f"get pods/log {pod.metadata.namespace}/{pod.metadata.name}"
    lines = _Lines(query)
    try:
        async with cluster.stream(path, request, _params(container, query, previous=previous)) as answer:
            async for chunk in answer.content.iter_any():
                if items := lines.feed(chunk):
                    yield items
                if lines.over:
                    return
    except (Waiting, NotFound):  # it has not started, or that run's log is gone
        return
    if rest := lines.rest():
        yield rest


def _params(container: str, query: LogQuery, *, previous: bool) -> list[tuple[str, str]]:
    params = [("container", container), ("timestamps", "true")]
    if query.follow and not previous:
        params.append(("follow", "true"))
    if query.tail is not None:
        params.append(("tailLines", str(query.tail)))
    if query.since is not None:  # whole seconds; the rest is left out here
        params.append(("sinceTime", datetime.fromtimestamp(int(query.since), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
    if previous:
        params.append(("previous", "true"))
    return params


class _Lines:
    """Turns chunks into lines with their times."""

    def __init__(self, query: LogQuery) -> None:
        self._since = query.since * _NS if query.since is not None else None
        self._until = query.until * _NS if query.until is not None else None
        self._rest = b""
        self._at: int | None = None  # of the line whose beginning was returned
        self.over = False

    def feed(self, chunk: bytes) -> list[LogItem]:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        items = [item for line in lines if (item := self._record(line + b"\n")) is not None]
        if len(self._rest) > PIECE and (item := self._record(self._rest)) is not None:
            self._rest = b""
            items.append(item)
        return items

    def rest(self) -> list[LogItem]:
        """A last line without its end."""
        item = self._record(self._rest) if self._rest else None
        return [item] if item is not None else []

    def _record(self, line: bytes) -> LogItem | None:
        if self._at is not None:
            at, data = self._at, line
        else:
            stamp, _, data = line.partition(b" ")
            if not (at := nanoseconds(stamp)):  # the node's own words, as it gives each line of the guest's a time
                return LogGap(0, f"the node could not read on: {line.decode('utf-8', 'replace').strip()[:_TOLD]}")
        self._at = None if line.endswith(b"\n") else at
        if self._until is not None and at > self._until:
            self.over = True
        if self.over or (self._since is not None and at < self._since):
            return None
        return LogRecord(at, Stream.STDOUT, data)


def nanoseconds(stamp: bytes) -> int:
    """A time with up to nine digits after the second; 0 if it is none."""
    if (found := _STAMP.fullmatch(stamp.decode("ascii", "replace"))) is None:
        return 0
    try:
        whole = datetime.fromisoformat(found[1] + found[3])
    except ValueError:
        return 0
    return int(whole.timestamp()) * _NS + int((found[2] or "").ljust(9, "0"))
