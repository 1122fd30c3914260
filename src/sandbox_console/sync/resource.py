"""What ``.get()`` opens, and ``with`` opens and closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from sandbox_console.library import async_resource
from sandbox_console.sync.loop import Loop

T = TypeVar("T")
A = TypeVar("A")


class Held(Generic[T]):
    """``with`` gives the thing and ends it with the block; ``get()`` gives it, and it lives on."""

    def __init__(self, loop: Loop, inner: async_resource.Held[A], wrap: Callable[[A], T]) -> None:
        self._loop = loop
        self._get: Callable[[], T] = lambda: wrap(loop.run(lambda: inner))
        self._enter: Callable[[], T] = lambda: wrap(loop.run(inner.__aenter__))
        self._exit: Callable[[], None] = lambda: loop.run(inner.__aexit__)

    def get(self) -> T:
        """Make it; it is yours to end."""
        return self._get()

    def __enter__(self) -> T:
        return self._enter()

    def __exit__(self, *_: object) -> None:
        self._exit()
