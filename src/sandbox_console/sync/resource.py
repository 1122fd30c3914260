"""Resources that ``.get()`` opens, and that ``with`` opens and closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sandbox_console.library import async_resource
from sandbox_console.sync.loop import Loop

T = TypeVar("T")
A = TypeVar("A")


class Held(Generic[T]):
    """A resource to be opened. ``with`` closes it at the end of the block; ``get()`` leaves it open."""

    def __init__(self, loop: Loop, inner: async_resource.Held[A], wrap: Callable[[A], T]) -> None:
        self._loop = loop
        self._get: Callable[[], T] = lambda: wrap(loop.run(lambda: inner))
        self._enter: Callable[[], T] = lambda: wrap(loop.run(inner.__aenter__))
        self._exit: Callable[[], None] = lambda: loop.run(inner.__aexit__)

    def get(self) -> T:
        """Open the resource. The caller closes it."""
        return self._get()

    def __enter__(self) -> T:
        return self._enter()

    def __exit__(self, *_: object) -> None:
        self._exit()
