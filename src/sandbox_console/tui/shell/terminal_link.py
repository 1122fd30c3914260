"""Connects a shell's session to a terminal widget: bytes in both directions, the size, and the end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from textual.content import Content
from textual.dom import DOMNode

from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import Exit
from sandbox_console.model.text import clean
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen

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
    def answers_itself(self) -> bool: ...


_SHOWN = 200
_ENTER = "A line with its end is pasted. A shell may run it."

OnEnd = Callable[[Exit | None, str], None]
Job = bytes | tuple[int, int]


def ask_about_paste(node: DOMNode, asked: TerminalView.LinesPasted) -> None:
    """Request confirmation once before pasting several lines, as a shell may run each of them."""
    lines = asked.text.splitlines()
    words = f"{len(lines)} lines are pasted. A shell may run each of them." if len(lines) > 1 else _ENTER

    def answered(agreed: bool | None) -> None:
        if agreed and asked.view.is_attached:
            asked.view.paste(asked.text)

    shown = Content("\n".join(clean(line, cap=_SHOWN) for line in lines[:_SHOWN]))
    node.app.push_screen(ConfirmScreen("Paste into the shell?", Content(words), "Paste", listed=shown), answered)


class ShellLink:
    """Connects a session until it ends. The console owns the session, so leaving the view does not end it."""

    def __init__(self, session: Session, view: TerminalView, on_end: OnEnd) -> None:
        self.session = session
        self.view = view
        self.ended = False
        self._on_end = on_end
        self._jobs: asyncio.Queue[Job] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        view.emulator.answers = not session.answers_itself
        view.attach(self._jobs.put_nowait, lambda cols, rows: self._jobs.put_nowait((cols, rows)))

    async def leave(self) -> None:
        """Disconnect. The shell keeps running until the console ends it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            job = await self._jobs.get()
            try:
                if isinstance(job, bytes):
                    await self.session.write(job)
                else:
                    await self.session.resize(*job)
            except (ConsoleError, OSError):
                return  # it ended, which the reading side reports

    async def _read(self) -> None:
        end, problem = None, ""
        try:
            await self.view.pump(self.session.read)
            end = await self.session.wait()
            await self.session.close()
        except (ConsoleError, OSError) as error:
            problem = error.message if isinstance(error, ConsoleError) else str(error)
            with contextlib.suppress(ConsoleError, OSError):  # it is no longer shown, so nobody may type into it
                await self.session.close()
        self.ended = True
        self._tasks[1].cancel()
        self.view.detach()
        self._on_end(end, problem)
