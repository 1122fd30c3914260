"""The app in a browser: ``serve`` shows it on a local address, behind a login."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sandbox_console.web.options import ServeOptions

if TYPE_CHECKING:
    from sandbox_console.web.share import ShareOptions

__all__ = ["ServeOptions", "desktop", "serve", "share"]


def serve(options: ServeOptions) -> int:
    """Serve the console to browsers until SIGINT or SIGTERM; returns the exit code.

    The address and its login token go to standard error. Raises UsageError for invalid options, ConfigError for a token
    or a configuration that cannot be used, Conflict if the port is taken.
    """
    options.check()
    from sandbox_console.web.run import run, say_on_stderr

    if options.command is None:
        from sandbox_console.service import check_configuration

        check_configuration(options.config, options.backend or "", options.only_hosts)
    return asyncio.run(run(options, say_on_stderr))


def desktop(options: ServeOptions) -> int:
    """Show the console in a window of its own until it is closed, or until SIGINT or SIGTERM; returns the exit code.

    Raises what `serve` raises, and ConsoleError if the browser fails.
    """
    options.check()
    from sandbox_console.service import check_configuration
    from sandbox_console.web.desktop import run_desktop
    from sandbox_console.web.run import say_on_stderr

    if options.command is None:
        check_configuration(options.config, options.backend or "")
    return asyncio.run(run_desktop(options, say_on_stderr))


def share(options: ShareOptions) -> int:
    """Share the console through a public relay until SIGINT or SIGTERM; returns the exit code.

    The output of textual-web goes to standard error. Raises Denied without consent, UsageError, Unsupported if no
    Python here fits textual-web, ConsoleError if it cannot be installed or ends by itself.
    """
    options.check()
    from sandbox_console.service import check_configuration
    from sandbox_console.web.run import say_on_stderr
    from sandbox_console.web.share import run

    check_configuration(options.config, options.backend or "", options.only_hosts)
    return asyncio.run(run(options, say_on_stderr))
