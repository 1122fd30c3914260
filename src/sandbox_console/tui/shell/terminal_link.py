"""Connects a session to an emulator, and the emulator to the widget that shows it: bytes, the size, and the end.

The emulator goes on without a widget, so a shell is up to date wherever and whenever it is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import Exit
from sandbox_console.tui.widgets.terminal.emulator import CHUNK, Emulator

if TYPE_CHECKING:
    from sandbox_console.tui.widgets.terminal.terminal import TerminalView


class Session(Protocol):
    """What a terminal on screen is connected to: a shell or a main process."""

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...
    async def resize(self, cols: int, rows: int) -> None: ...
    async def wait(self) -> Exit: ...
    async def close(self) -> None: ...
    @property
    def recorded(self) -> bool: ...
    @property
    def without(self) -> tuple[str, ...]: ...
    @property
    def kept(self) -> str: ...
    @property
    def answers_itself(self) -> bool: ...


OnEnd = Callable[[Exit | None, str], None]
Job = bytes | tuple[int, int]

TYPED_MOST = 1 << 20
"""How many typed bytes may wait for a shell that takes none, as one of a frozen engine does."""


class ShellLink:
    """Connects a session until it ends. The console owns the session, so closing the link does not end it.

    ``on_output`` is called after output was interpreted, whether or not a widget shows it.
    """

    def __init__(
        self, session: Session, emulator: Emulator, on_end: OnEnd, on_output: Callable[[], None] = lambda: None
    ) -> None:
        self.session = session
        self.emulator = emulator
        self.view: TerminalView | None = None
        self.ended = False
        self._on_end, self._on_output = on_end, on_output
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._waiting = 0
        self._dropping = False
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    def show_in(self, view: TerminalView) -> None:
        """Let a widget show it and type into it. The one before, if any, only keeps what it drew last."""
        if self.view is not None and self.view is not view:
            self.view.detach()
        self.view = view
        if not self.ended:
            view.attach(self.send, lambda cols, rows: self._jobs.put_nowait((cols, rows)))

    def send(self, data: bytes) -> None:
        """Send bytes as typed input. Those for which there is no room are dropped, which is said."""
        if not data or self.ended:
            return
        if self._waiting + len(data) > TYPED_MOST:
            self._say_dropped()
            return
        self._waiting += len(data)
        self._jobs.put_nowait(data)

    async def leave(self) -> None:
        """Disconnect. The shell keeps running until the console ends it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.view is not None:
            self.view.detach()

    async def _write(self) -> None:
        while True:
            job = await self._jobs.get()
            try:
                if isinstance(job, bytes):
                    await self.session.write(job)
                    self._waiting -= len(job)
                    self._dropping = self._dropping and self._waiting > 0
                else:
                    await self.session.resize(*job)
            except (ConsoleError, OSError):
                return  # it ended, which the reading side reports

    def _say_dropped(self) -> None:
        if not self._dropping and self.view is not None:
            words = f"The shell takes nothing, and {self._waiting >> 10} KiB of keys wait for it. More are dropped."
            self.view.app.notify(words, severity="warning", markup=False)
        self._dropping = True

    async def _pump(self) -> None:
        while data := await self.session.read():
            for at in range(0, len(data), CHUNK):
                self._take(data[at : at + CHUNK])
                await asyncio.sleep(0)

    def _take(self, data: bytes) -> None:
        replies = self.emulator.feed(data)
        if not self.session.answers_itself:
            self.send(replies)
        if self.view is not None:
            self.view.draw_soon()
        self._on_output()

    async def _read(self) -> None:
        end, problem = None, ""
        try:
            await self._pump()
            end = await self.session.wait()
            await self.session.close()
        except (ConsoleError, OSError) as error:
            problem = error.message if isinstance(error, ConsoleError) else str(error)
            with contextlib.suppress(ConsoleError, OSError):  # it is no longer shown, so nobody may type into it
                await self.session.close()
        self.ended = True
        self._tasks[1].cancel()
        if self.view is not None:
            self.view.detach()
        self._on_end(end, problem)
