"""The microsandbox SDK, imported when there is something to ask it (0.1 s of CPU, 42 MB of native code)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sandbox_console.errors import BackendError, BackendUnreachable, NotFound, Unsupported

PAGE = 100


def home() -> Path:
    """The runtime's home: MSB_HOME, else ~/.microsandbox."""
    return Path(os.environ.get("MSB_HOME") or os.path.expanduser("~/.microsandbox"))  # noqa: PTH111 - a uid may have no account


def used() -> bool:
    """Whether microsandbox was ever used here: without a database there is nothing to list, and nothing is made."""
    return (home() / "db").is_dir() or bool(os.environ.get("MSB_BACKEND") or os.environ.get("MSB_PROFILE"))


def stamp() -> tuple[tuple[str, int, int], ...]:
    """Changes when the database does: the SDK has no events, and this costs three stat() calls."""
    found = []
    for name in ("msb.db", "msb.db-wal"):
        try:
            state = (home() / "db" / name).stat()
        except OSError:
            continue
        found.append((name, state.st_mtime_ns, state.st_size))
    return tuple(found)


async def load() -> Any:
    """The SDK's module. Raises Unsupported where it is missing, or is set to a cloud account."""
    module = await asyncio.to_thread(_import)
    kind = str(module.default_backend_info().kind)
    if kind != "local":
        raise Unsupported(
            f"microsandbox is set to its {kind} backend, which this version does not speak to",
            hint="unset MSB_BACKEND and MSB_PROFILE",
        )
    return module


def _import() -> Any:
    try:
        import microsandbox
    except ImportError as error:
        raise Unsupported(
            f"the microsandbox package cannot be loaded: {error}", hint="pip install microsandbox"
        ) from error
    return microsandbox


async def result(future: Awaitable[Any]) -> Any:
    """Await one of the SDK's futures, which are not coroutines and which create_task refuses."""
    return await asyncio.ensure_future(future)


@contextmanager
def translated(module: Any, what: str) -> Iterator[None]:
    """Turn the SDK's errors into the console's. Their text names sandboxes and paths, never a config."""
    try:
        yield
    except module.SandboxNotFoundError as error:
        raise NotFound(f"{what} is not there (any more)", hint="sandbox-console ls --all") from error
    except module.RuntimeNotInstalledError as error:
        raise BackendUnreachable(f"microsandbox's runtime is not installed: {error}", hint="msb doctor") from error
    except module.MicrosandboxError as error:
        raise BackendError(f"microsandbox failed on {what}: {error}", hint="msb doctor tells what is wrong") from error


async def handles(module: Any) -> list[Any]:
    """Every sandbox's handle, newest first."""
    found: list[Any] = []
    cursor: str | None = None
    with translated(module, "its list of sandboxes"):
        while True:
            page = await result(module.Sandbox.list_with(cursor=cursor, limit=PAGE))
            found += page.sandboxes
            cursor = page.next_cursor
            if cursor is None:
                return found
