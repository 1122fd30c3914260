"""The event loop, in a thread of its own, that carries out the calls of synchronous callers."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from sandbox_console.errors import UsageError

T = TypeVar("T")
Ending = Callable[[], Coroutine[Any, Any, None]]

_END_S = 30.0
"""How long the exit of the interpreter waits for open consoles."""


class Loop:
    """A thread with an event loop, for one process. A forked child gets another one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox-console", daemon=True)
        self._thread.start()
        self._endings: dict[object, Ending] = {}
        self._over = False

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine and return its result. If interrupted (Ctrl+C), cancel it and wait for its end.

        Raises UsageError in the loop's own thread, in a forked child, and when the interpreter is exiting.
        """
        self._refuse()
        future = asyncio.run_coroutine_threadsafe(_done(work), self._loop)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                future.cancel()
                concurrent.futures.wait([future])
            raise

    def _refuse(self) -> None:
        if os.getpid() != self.pid:
            raise UsageError(
                "this console was opened by the process that forked this one", hint="open another one after the fork"
            )
        if threading.current_thread() is self._thread:
            raise UsageError(
                "sandbox_console.sync was called on its own thread, where it would wait for itself",
                hint="in a coroutine, use sandbox_console.open_console",
            )
        if self._over:
            raise UsageError(
                "the interpreter is ending: every console is closed", hint="leave the block before the end"
            )

    def keep(self, key: object, ending: Ending) -> None:
        """Remember how to close something, in case the interpreter exits before it is closed."""
        self._endings[key] = ending

    def close(self, key: object) -> None:
        """Close something. Does nothing if it is closed, or in a forked child, which does not own it."""
        if os.getpid() == self.pid and not self._over and (ending := self._endings.pop(key, None)):
            self.run(ending)

    def end(self) -> None:
        """Close everything that is open, then end the thread."""
        if self._over or os.getpid() != self.pid:
            return
        self._over = True
        for ending in list(self._endings.values()):
            with suppress(Exception):  # the interpreter exits in any case
                asyncio.run_coroutine_threadsafe(ending(), self._loop).result(_END_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)


async def _done(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


_lock = threading.Lock()
_current: list[Loop] = []


def current() -> Loop:
    """The loop of this process, started when first needed."""
    with _lock:
        if not _current or _current[0].pid != os.getpid():
            _current[:] = [Loop()]
            _before_exit(_current[0].end)
        return _current[0]


def _before_exit(end: Callable[[], None]) -> None:
    """Call a function at exit while threads can still be started.

    ``atexit`` runs too late, after the pools of concurrent.futures have ended. The last one registered is called first,
    so concurrent.futures.thread, which registers the end of its pools, is imported above.
    """
    getattr(threading, "_register_atexit", atexit.register)(end)


def _renew_lock() -> None:
    """Replace the lock in a forked child, as another thread of the parent may have held it."""
    global _lock  # noqa: PLW0603 - there is one loop a process, and one lock for it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
