"""Passes events to viewers through bounded queues.

States of a sandbox replace each other; output drops its oldest part.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable
from typing import assert_never

from sandbox_console.model.event import (
    Acted,
    AuditChanged,
    Changed,
    ConfigChanged,
    Denied,
    Event,
    Gap,
    HealthChanged,
    Listed,
    Removed,
    Sampled,
)
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef

ACTED_KEPT = 1000
"""Ended actions that wait for a slow viewer; older ones become a Gap."""


class Subscription:
    """One viewer's queue: at most a state for each sandbox and ACTED_KEPT actions. Publishers never wait."""

    def __init__(self, on_close: Callable[[Subscription], None]) -> None:
        self._states: dict[Hashable, Event] = {}
        self._acted: deque[Acted] = deque()
        self._dropped = 0
        self._ready = asyncio.Event()
        self._on_close = on_close

    def put(self, event: Event) -> None:
        """Take an event without waiting."""
        if isinstance(event, Acted):
            if len(self._acted) >= ACTED_KEPT:
                self._acted.popleft()
                self._dropped += 1
            self._acted.append(event)
        else:
            key = _key(event)
            self._states.pop(key, None)  # the newest state comes last, after what it may depend on
            self._states[key] = event
        self._ready.set()

    async def batch(self) -> list[Event]:
        """Wait for an event and return all that are queued."""
        await self._ready.wait()
        self._ready.clear()
        gap: list[Event] = [Gap(self._dropped)] if self._dropped else []
        events: list[Event] = [*self._states.values(), *gap, *self._acted]
        self._states.clear()
        self._acted.clear()
        self._dropped = 0
        return events

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            for event in await self.batch():
                yield event

    def close(self) -> None:
        """Stop receiving."""
        self._on_close(self)


class Hub:
    """Keeps the latest state of the fleet and passes events on."""

    def __init__(self) -> None:
        self.sandboxes: dict[SandboxRef, Sandbox] = {}
        self.health: dict[tuple[str, str], BackendHealth] = {}
        self.listed: set[tuple[str, str]] = set()
        """Every (backend, host) whose whole list has come at least once."""
        self._denied: dict[SandboxRef, Denied] = {}
        self._listeners: list[Callable[[Event], object]] = []
        self._viewers: set[Subscription] = set()
        self._latest: dict[type[Event], Event] = {AuditChanged: AuditChanged("")}

    def publish(self, event: Event) -> None:
        """Store an event and pass it to every viewer."""
        self._remember(event)
        for listener in self._listeners:
            listener(event)
        for viewer in self._viewers:
            viewer.put(event)

    def listen(self, listener: Callable[[Event], object]) -> None:
        """Call ``listener`` with every event from now on, before the viewers get it. It must not wait."""
        self._listeners.append(listener)

    def subscribe(self) -> Subscription:
        """A new viewer, which first gets the state so far."""
        viewer = Subscription(self._viewers.discard)
        for event in self._latest.values():
            viewer.put(event)
        for health in self.health.values():
            viewer.put(HealthChanged(health))
        for sandbox in self.sandboxes.values():
            viewer.put(Changed(sandbox))
        for denied in self._denied.values():
            viewer.put(denied)
        self._viewers.add(viewer)
        return viewer

    def _remember(self, event: Event) -> None:
        match event:
            case Listed(backend, host, sandboxes):
                self.listed.add((backend, host))
                for ref in [ref for ref in self.sandboxes if ref.host == host and ref.backend == backend]:
                    del self.sandboxes[ref]
                self.sandboxes.update({sandbox.ref: sandbox for sandbox in sandboxes})
                for ref in [ref for ref in self._denied if ref not in self.sandboxes]:
                    del self._denied[ref]
            case Changed(sandbox):
                self.sandboxes[sandbox.ref] = sandbox
            case Removed(ref):
                self.sandboxes.pop(ref, None)
                self._denied.pop(ref, None)
            case Denied(ref):
                self._denied[ref] = event
            case HealthChanged(health):
                self.health[health.backend, health.host] = health
            case AuditChanged() | ConfigChanged():
                self._latest[type(event)] = event
            case Sampled() | Acted() | Gap():
                pass
            case _:
                assert_never(event)


def _key(event: Event) -> Hashable:
    match event:
        case Listed(backend, host):
            return ("list", backend, host)
        case Changed(sandbox):
            return sandbox.ref
        case Removed(ref):
            return ref
        case HealthChanged(health):
            return ("health", health.backend, health.host)
        case Sampled(ref):
            return ("stats", ref)
        case Denied(ref):
            return ("denied", ref)
        case _:
            return type(event).__name__
