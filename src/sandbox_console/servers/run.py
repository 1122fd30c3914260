"""``serve`` with ``--api``, ``--mcp``, ``--microsandbox`` or ``--status``: listeners of their own beside the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from sandbox_console.cli.context import Opener
from sandbox_console.errors import UsageError
from sandbox_console.servers.mcp.stdio import need_package
from sandbox_console.service import Console, find_paths, open_console
from sandbox_console.service.tokens import Tokens
from sandbox_console.web import ServeOptions


class Programs(Struct, frozen=True):
    """What is served with the page or without it. Port 0 picks a free port."""

    api: bool = False
    api_port: int = 0
    mcp: bool = False
    mcp_port: int = 0
    status: bool = False
    status_port: int = 0
    page: bool = True
    microsandbox: bool = False
    microsandbox_port: int = 0

    def check(self) -> None:
        """Raise UsageError for invalid ports."""
        for option, port in (("--api-port", self.api_port), ("--mcp-port", self.mcp_port),
                             ("--status-port", self.status_port),
                             ("--microsandbox-port", self.microsandbox_port)):  # fmt: skip
            if not 0 <= port <= 65535:
                raise UsageError(f"{option}: {port} is not between 0 and 65535", hint="leave it out for a free one")


def serve(options: ServeOptions, programs: Programs) -> int:
    """Serve until SIGINT or SIGTERM. Returns the exit code. Addresses go to standard error.

    Raises UsageError for invalid options, ConfigError, Conflict if a port is taken, Unsupported if an extra of this
    package is missing.
    """
    options.check()
    programs.check()
    from sandbox_console.web.run import say_on_stderr

    return asyncio.run(run(options, programs, say_on_stderr))


async def run(options: ServeOptions, programs: Programs, say: Callable[[str], None]) -> int:
    """Serve until a signal comes. Returns the exit code."""
    from sandbox_console.web.run import page, stop_signal

    stopped = stop_signal()
    async with AsyncExitStack() as stack:
        sessions = await stack.enter_async_context(page(options, say)) if programs.page else None
        await _programs(stack, options, programs, say, sessions)
        await stopped.wait()
    return 0


async def _programs(
    stack: AsyncExitStack, options: ServeOptions, programs: Programs, say: Callable[[str], None],
    sessions: Callable[[], int] | None,
) -> None:  # fmt: skip
    if programs.mcp:
        need_package()
    options = replace(options, socket=None)  # the socket is for the page
    paths = find_paths(options.config)
    console = await stack.enter_async_context(
        open_console(
            config_file=options.config,
            read_only=options.read_only,
            only_backend=options.backend or "",
            only_hosts=options.only_hosts,
        )
    )
    console.shipper.start()
    tokens = Tokens(paths.tokens)
    if programs.api:
        from sandbox_console.servers.api.server import api

        await stack.enter_async_context(api(options, programs.api_port, console, tokens, say))
    if programs.mcp:
        from sandbox_console.servers.mcp.http import mcp

        await stack.enter_async_context(mcp(options, programs.mcp_port, console, tokens, say))
    if programs.microsandbox:
        from sandbox_console.servers.microsandbox.server import microsandbox

        await stack.enter_async_context(microsandbox(options, programs.microsandbox_port, console, tokens, say))
    if programs.status:
        from sandbox_console.servers.status.server import status

        await stack.enter_async_context(status(options, programs.status_port, console, tokens, say, sessions))


def watched(opener: Opener, port: int, say: Callable[[str], None]) -> Opener:
    """An opener whose console serves its status at 127.0.0.1 for as long as it is open."""

    @asynccontextmanager
    async def opened(**words: Any) -> AsyncIterator[Console]:
        from sandbox_console.servers.status.server import status

        config = words.get("config_file")
        async with opener(**words) as console:
            options = ServeOptions(config=config)
            async with status(options, port, console, Tokens(find_paths(config).tokens), say):
                yield console

    return opened
