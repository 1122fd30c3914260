"""An action in flight. The console owns it, whatever happens to the view that started it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from msgspec import Struct, field

from sandbox_console.errors import UsageError
from sandbox_console.model.action import Action
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit, SandboxRef

CAPTURE_BYTES = 1024 * 1024
"""How much of each stream a result keeps if nobody takes the output as it arrives."""

T = TypeVar("T")
OnOutput = Callable[[Stream, bytes], Awaitable[None]]
Fetch = Callable[[str], AsyncIterator[bytes]]
"""Takes a path out of the sandbox, as a tar."""


class Hold(Protocol):
    """What an Attach or a Forward holds while it goes on."""

    async def release(self) -> None:
        """Let go of the sandbox without ending it. Safe to call twice."""
        ...


class ExecIO(Struct):
    """A command's input, and where its output goes; without ``on_output`` the result keeps the first MiB.

    ``on_held`` is called when an Attach is connected to the main process, and when a Forward listens. ``most`` is the
    number of bytes after which a download stops; the rest is left in the sandbox. ``evidence`` collects what a Bundle
    is to contain, once that is on record, and returns details for the row's end. ``on_shown`` gets what a command
    shows as well, before anybody else does.
    """

    stdin: AsyncIterator[bytes] | None = None
    on_output: OnOutput | None = None
    on_held: Callable[[Hold], None] | None = None
    most: int | None = None
    evidence: Callable[[Fetch], Awaitable[Mapping[str, object]]] | None = None
    on_shown: OnOutput | None = None


class ActionResult(Struct, frozen=True):
    """How an action ended: ``exit_code`` is the guest's, ``ref`` the new one after a create or recreate.

    ``exit`` describes a command's end in full. ``pid`` is its process: inside the sandbox if known, else on the host.
    """

    audit_id: int
    ref: SandboxRef | None = None
    exit_code: int | None = None
    exit: Exit | None = None
    pid: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    timed_out: bool = False
    details: dict[str, object] = field(default_factory=dict)


class Operation:
    """A handle for an action: wait for its result, follow its progress, or cancel it."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self._task: asyncio.Task[ActionResult] | None = None
        self._progress: deque[str] = deque(maxlen=200)
        self._news = asyncio.Event()

    def run(self, task: asyncio.Task[ActionResult]) -> None:
        """Set the task that carries out the action."""
        self._task = task
        task.add_done_callback(self._ended)

    def report(self, text: str) -> None:
        """Report progress to the followers."""
        self._progress.append(text)
        self._news.set()

    async def result(self) -> ActionResult:
        """Wait for the end. Raises the action's error; cancelling the wait does not cancel the action."""
        assert self._task is not None  # noqa: S101 - run() is called by the console that made this
        return await shielded(self._task)

    async def events(self) -> AsyncIterator[str]:
        """Lines of progress until the end."""
        while True:
            while self._progress:
                yield self._progress.popleft()
            if self.done:
                return
            self._news.clear()
            await self._news.wait()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._task is not None and self._task.done()

    def cancel(self) -> None:
        """Request its end. Its outcome is recorded as cancelled."""
        if self._task is not None:
            self._task.cancel()

    def _ended(self, task: asyncio.Task[ActionResult]) -> None:
        if not task.cancelled():
            task.exception()  # result() may fetch it; otherwise it is not an unhandled error
        self._news.set()


class OwnedTasks:
    """The work of a console in flight. It goes on if whoever waits for it is cancelled.

    ``need_open`` raises UsageError once the console is closed.
    """

    def __init__(self, need_open: Callable[[], None]) -> None:
        self._need_open = need_open
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start work. Raises UsageError if the console is closed."""
        try:
            self._need_open()
        except UsageError:
            work.close()
            raise
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel(self) -> None:
        """Cancel all of it, and wait until it has ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
