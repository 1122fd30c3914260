"""The app in a browser: ``serve`` shows it on a local address, behind a login."""

from __future__ import annotations

import asyncio

from sandbox_console.web.options import ServeOptions

__all__ = ["ServeOptions", "serve"]


def serve(options: ServeOptions) -> int:
    """Serve the console to browsers until SIGINT or SIGTERM; returns the exit code.

    The address and its login token go to standard error. Raises UsageError for options that do not hold,
    ConfigError for a token that cannot be used, Conflict where the port is taken.
    """
    options.check()
    from sandbox_console.web.run import run, say_on_stderr

    return asyncio.run(run(options, say_on_stderr))
