"""Keeps logs that were viewed during the session, of sandboxes that are not on screen or are gone."""

from __future__ import annotations

from msgspec import Struct, field

from sandbox_console.logs.read_position import ReadPosition
from sandbox_console.logs.store import LineStore
from sandbox_console.model.sandbox import SandboxRef


class RecentLog(Struct):
    """One sandbox's log. ``places`` is how far it was read, ``gone_at`` is when the sandbox went away."""

    ref: SandboxRef
    name: str
    store: LineStore
    places: ReadPosition = field(default_factory=ReadPosition)
    gone_at: float | None = None


class RecentLogs:
    """Logs with at most ``cap_bytes`` of output in all.

    If there is more, logs of existing sandboxes are dropped first, since their backend still has them, and then those
    that were not read for longest.
    """

    def __init__(self, cap_bytes: int) -> None:
        self.cap_bytes = cap_bytes
        self._kept: dict[SandboxRef, RecentLog] = {}

    @property
    def size_bytes(self) -> int:
        """How many bytes of output are held."""
        return sum(log.store.size_bytes for log in self._kept.values())

    @property
    def gone(self) -> list[RecentLog]:
        """The logs whose sandbox is gone, newest first."""
        logs = [log for log in self._kept.values() if log.gone_at is not None]
        return sorted(logs, key=lambda log: -(log.gone_at or 0))

    def put(self, log: RecentLog) -> None:
        """Keep a log as the most recently read one."""
        self._kept.pop(log.ref, None)
        if len(log.store) or log.store.partials():
            self._kept[log.ref] = log
        self._shrink()

    def newest_ns(self, ref: SandboxRef) -> int:
        """The time of the newest line held of a sandbox; -1 if there is none."""
        log = self._kept.get(ref)
        found = log.store.newest_ns if log else None
        return -1 if found is None else found

    def take(self, ref: SandboxRef) -> RecentLog | None:
        """Remove and return a sandbox's log; None if there is none."""
        return self._kept.pop(ref, None)

    def note_gone(self, ref: SandboxRef, at: float) -> None:
        """Note that a sandbox was removed."""
        if (log := self._kept.get(ref)) is not None and log.gone_at is None:
            log.gone_at = at

    def refs(self) -> list[SandboxRef]:
        """The sandboxes whose logs are kept and that still exist, as far as is known."""
        return [ref for ref, log in self._kept.items() if log.gone_at is None]

    def _shrink(self) -> None:
        size = self.size_bytes
        while size > self.cap_bytes and len(self._kept) > 1:
            living = next((ref for ref, log in self._kept.items() if log.gone_at is None), None)
            victim = self._kept.pop(living if living is not None else next(iter(self._kept)))
            size -= victim.store.size_bytes
