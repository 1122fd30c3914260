"""Makes SIGTERM, SIGHUP and SIGINT quit the app: the terminal is restored, shells are ended and recorded."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from sandbox_console.crash_guard import guard

if TYPE_CHECKING:  # `tui.run` imports this before Textual
    from textual.app import App

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@contextmanager
def ended_by_signals(app: App[Any]) -> Iterator[None]:
    """Quit the app at the first of these signals, with 128 + its number as exit code. A second one ends it at once.

    The second signal is for a console that waits for an engine that does not answer. The terminal is still restored,
    and the next console records the actions that were in flight as unknown.
    """
    loop = asyncio.get_running_loop()
    for signum in SIGNALS:
        loop.add_signal_handler(signum, partial(_quit, app, signum))
    try:
        yield
    finally:
        for signum in SIGNALS:
            loop.remove_signal_handler(signum)


def _quit(app: App[Any], signum: signal.Signals) -> None:
    loop = asyncio.get_running_loop()
    for again in SIGNALS:
        loop.add_signal_handler(again, partial(_end_now, app, again))
    app.exit(return_code=128 + signum, message=f"Ended by {signum.name}.")


def _end_now(app: App[Any], signum: signal.Signals) -> None:
    with suppress(Exception):  # the process ends, whatever state the driver is in
        if app._driver is not None:  # noqa: SLF001 - Textual has no public access to its driver
            app._driver.stop_application_mode()  # noqa: SLF001
            app._driver.close()  # noqa: SLF001
            guard.terminal_restored()
    os._exit(128 + signum)
