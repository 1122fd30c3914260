"""Opens a console, runs the app on it, and closes both."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox_console.crash_guard import guard
from sandbox_console.model.pastes import GuardedParser
from sandbox_console.service import Console, open_console
from sandbox_console.tui.base.end_signals import ended_by_signals
from sandbox_console.tui.base.gc_pause import freeze_soon

if TYPE_CHECKING:
    from sandbox_console.tui.app import ConsoleApp

Opener = Callable[..., AbstractAsyncContextManager[Console]]
"""Opens the console, with ``config_file``, ``read_only`` and ``only_backend``, and ``only_hosts`` if there are any."""


async def run(
    *, config_file: Path | None, read_only: bool, backend: str, hosts: Sequence[str], opener: Opener | None
) -> int:
    """Do what :func:`sandbox_console.tui.run_tui` does, on a running loop."""
    some: dict[str, Any] = {"only_hosts": hosts} if hosts else {}
    opened = (opener or open_console)(config_file=config_file, read_only=read_only, only_backend=backend, **some)
    async with opened as console:
        on_terminal = os.isatty(0)
        guard.hold_terminal()
        console.connect_few()  # backends answer while a thread imports the app; more than a few would slow that down
        console.shipper.start()
        app = (await asyncio.to_thread(_app_class))(console)
        settling = freeze_soon()
        lost = asyncio.gather(console.end_lost_shells(), console.recreations.look(), return_exceptions=True)
        try:
            with ended_by_signals(app):
                await app.run_async()
        except OSError:  # its last message cannot be printed
            if not on_terminal or os.isatty(0):
                raise
        finally:
            guard.terminal_restored()
            settling.cancel()
            lost.cancel()
        hung_up = on_terminal and not os.isatty(0)  # reading a closed window may fail before its SIGHUP comes
        return 128 + signal.SIGHUP if hung_up else app.return_code or 0


def _app_class() -> type[ConsoleApp]:
    from textual._xterm_parser import XTermParser
    from textual.drivers import linux_driver

    # The driver creates its parser itself, using this name.
    vars(linux_driver)["XTermParser"] = lambda debug=False: GuardedParser(XTermParser(debug))
    from sandbox_console.tui.app import ConsoleApp

    return ConsoleApp
