"""A sandbox's log for faces: secrets masked, and kept after its end if that is configured."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence

from sandbox_console.errors import NotFound
from sandbox_console.model.log import LogItem, LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.retained_logs import Retained


class LiveLogs:
    """The logs of the fleet's sandboxes. ``retained`` keeps what is followed; None if nothing is kept."""

    def __init__(self, fleet: Fleet, vault: Vault, retained: Retained | None) -> None:
        self._fleet, self._vault, self._retained = fleet, vault, retained

    async def read(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        """Batches of a sandbox's output: the bytes as they were written, with known secrets masked."""
        backend = await self._fleet.use(ref.backend, ref.host)
        await self._vault.learn_plain()
        name = ref.id
        with contextlib.suppress(NotFound):
            sandbox = await backend.inspect(ref)
            name = sandbox.name
            await self._vault.learn(sandbox.spec.secrets if sandbox.spec else ())
        masks = _Masks(self._vault.redactor)
        keeper = self._retained.keeper(ref, name) if self._retained is not None and _kept(ref, query) else None
        async for batch in backend.logs(ref, query):
            shown = masks.over(batch)
            if keeper is not None:
                await keeper.store(shown)
            yield shown
        rest = masks.rest()
        if keeper is not None:
            await keeper.store(rest)
            await keeper.end()
        if rest:
            yield rest


def _kept(ref: SandboxRef, query: LogQuery) -> bool:
    """Whether it is the log that is kept: that of the main container, as it comes."""
    return query.follow and not query.previous and not ref.container


class _Masks:
    """A mask for each stream: a value may begin in one record and end in the next."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._streams: dict[Stream, StreamRedactor] = {}
        self._last = 0

    def over(self, batch: Sequence[LogItem]) -> list[LogItem]:
        self._last = batch[-1].at_ns if batch else self._last
        return [self._masked(item) for item in batch]

    def rest(self) -> list[LogItem]:
        """The bytes that were held back, because they might have begun a value."""
        return [LogRecord(self._last, stream, mask.flush()) for stream, mask in self._streams.items() if mask.holding]

    def _masked(self, item: LogItem) -> LogItem:
        if not isinstance(item, LogRecord) or not self._redactor.active:
            return item
        mask = self._streams.setdefault(item.stream, StreamRedactor(self._redactor))
        # The end of a line ends what may have been the beginning of a value, so nothing is held back beyond it.
        data = mask.feed(item.data) + (mask.flush() if item.data.endswith(b"\n") else b"")
        return LogRecord(item.at_ns, item.stream, data)
