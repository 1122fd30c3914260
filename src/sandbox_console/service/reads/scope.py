"""Hides sandboxes from people who may not see them: a backend answers as if they were not there.

Every backend is wrapped, so a read that names a sandbox is checked whichever part of the console makes it. What the
console does for itself (its records, the folders of guests) runs with all rights.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import lru_cache
from typing import Any, NoReturn, cast

from msgspec import structs

from sandbox_console.backends import abilities
from sandbox_console.backends.base import Backend
from sandbox_console.errors import NotFound
from sandbox_console.model.access import Access, access
from sandbox_console.model.event import BackendEvent, Changed, Listed, Removed
from sandbox_console.model.sandbox import Sandbox, SandboxRef

AGAIN_S = 1.0
"""A stream goes on for so long before it is looked whether its sandbox may still be seen."""

Method = Callable[..., Any]


def _reads(protocol: type) -> dict[str, bool]:
    """The methods that read one sandbox, and whether they are streams."""
    found = {}
    for name, method in vars(protocol).items():
        hints = getattr(method, "__annotations__", {})
        if hints.get("ref") == "SandboxRef" and "permit" not in hints and not name.startswith("_"):
            found[name] = not inspect.iscoroutinefunction(method)
    return found


_PROTOCOLS = (Backend, *(one for one in vars(abilities).values() if isinstance(one, type)))
READS: dict[str, bool] = {name: stream for one in _PROTOCOLS for name, stream in _reads(one).items()}
"""The methods of ``base`` and ``abilities`` that read one sandbox; True for those that are streams."""


class _Scoped:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name, self.host = backend.name, backend.host

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def scoped(backend: Backend) -> Backend:
    """The backend, for which sandboxes that the acting person may not see are not there."""
    return cast(Backend, _scoped_class(type(backend))(backend))


@lru_cache(maxsize=64)  # 100 hosts of one backend share a class, as making one takes 1 ms
def _scoped_class(kind: type) -> Callable[[Backend], object]:
    names = (name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name, None)))
    # A class of its own with all methods: from Python 3.12 on, a Protocol is looked up in the class.
    return type(f"Scoped{kind.__name__}", (_Scoped,), {name: _method(name) for name in names})


def shown(sandboxes: Iterable[Sandbox]) -> list[Sandbox]:
    """The sandboxes that the acting person may see."""
    rights = access()
    return [sandbox for sandbox in sandboxes if rights.sees(sandbox.labels)]


def shown_event(event: BackendEvent, rights: Access) -> BackendEvent:
    """An event as a person hears it. A sandbox that has lost the person's label is gone."""
    if rights.labels and isinstance(event, Listed):
        return structs.replace(event, sandboxes=tuple(one for one in event.sandboxes if rights.sees(one.labels)))
    if isinstance(event, Changed) and not rights.sees(event.sandbox.labels):
        return Removed(event.sandbox.ref)
    return event


def no_such(ref: SandboxRef) -> NoReturn:
    """Raise the error for a sandbox that is not there, or that may not be seen."""
    raise NotFound(f"there is no sandbox {ref}", hint="sandbox-console ls --all") from None


def _method(name: str) -> Method:
    if name == "inspect":
        return _inspect
    if name not in READS:
        return _passed(name)
    return _stream(name) if READS[name] else _answer(name)


def _passed(name: str) -> Method:
    def method(self: _Scoped, *args: Any, **named: Any) -> Any:
        return getattr(self._backend, name)(*args, **named)

    return method


async def _inspect(self: _Scoped, ref: SandboxRef) -> Sandbox:
    return await _seen(self._backend, ref) if access().labels else await self._backend.inspect(ref)


def _answer(name: str) -> Method:
    def method(self: _Scoped, ref: SandboxRef, *args: Any, **named: Any) -> Awaitable[Any]:
        read = getattr(self._backend, name)
        return (
            _checked(self._backend, ref, lambda: read(ref, *args, **named))
            if access().labels
            else read(ref, *args, **named)
        )

    return method


def _stream(name: str) -> Method:
    def method(self: _Scoped, ref: SandboxRef, *args: Any, **named: Any) -> AsyncIterator[Any]:
        items = getattr(self._backend, name)(ref, *args, **named)
        return _checked_items(self._backend, ref, items) if access().labels else items

    return method


async def _checked(backend: Backend, ref: SandboxRef, read: Callable[[], Awaitable[Any]]) -> Any:
    await _seen(backend, ref)
    return await read()


async def _checked_items(backend: Backend, ref: SandboxRef, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    try:
        await _seen(backend, ref)
        looked = time.monotonic()
        async for item in items:
            if time.monotonic() - looked > AGAIN_S:
                await _seen(backend, ref)
                looked = time.monotonic()
            yield item
    finally:
        if (close := getattr(items, "aclose", None)) is not None:
            await close()


async def _seen(backend: Backend, ref: SandboxRef) -> Sandbox:
    try:
        found = await backend.inspect(ref)
    except NotFound:
        no_such(ref)
    if not access().sees(found.labels):
        no_such(ref)
    return found
