"""Resources that ``await`` opens, and that ``async with`` opens and closes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from sandbox_console.errors import UsageError
from sandbox_console.model.cancellation import run_to_completion

T = TypeVar("T")


class Held(Generic[T]):
    """A resource to be opened. ``async with`` closes it at the end of the block; ``await`` leaves it open."""

    def __init__(self, make: Callable[[], Awaitable[T]], end: Callable[[T], Awaitable[None]]) -> None:
        self._make, self._end = make, end
        self._made: list[T] = []

    def __await__(self) -> Generator[Any, Any, T]:
        return self._make().__await__()

    async def __aenter__(self) -> T:
        if self._made:
            raise UsageError("it was made already", hint="call again for another one")
        made = await self._make()
        self._made.append(made)
        return made

    async def __aexit__(self, *_: object) -> None:
        await run_to_completion(self._end(self._made[0]))  # even if the block is cancelled: nothing is left behind
