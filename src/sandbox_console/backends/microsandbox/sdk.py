"""The microsandbox SDK, imported when it is needed (0.1 s of CPU, 42 MB of native code)."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Any

from sandbox_console.errors import BackendError, BackendUnreachable, Conflict, NotFound, Unsupported, UsageError

PAGE = 100
"""The number of sandboxes in a page of the runtime's list."""


def home() -> Path:
    """The runtime's home: MSB_HOME, else ~/.microsandbox."""
    return Path(os.environ.get("MSB_HOME") or Path.home() / ".microsandbox")


def close_home() -> None:
    """Close the runtime's home to other users. Raises BackendError if that is not possible.

    The runtime (0.7.11) creates it, its database with the values of placeholders, and the logs of commands with modes
    by the umask, which usually lets every user read them.
    """
    folder = home()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        st = folder.stat()
        if stat.S_IMODE(st.st_mode) & 0o077:
            folder.chmod(stat.S_IMODE(st.st_mode) & ~0o077)
    except OSError as error:
        raise BackendError(
            f"other users of this machine can read {folder}, where microsandbox keeps secrets: {error.strerror}",
            hint="set MSB_HOME to a folder of your own",
        ) from error


def used() -> bool:
    """Whether microsandbox was ever used here: without a database there is nothing to list, and nothing is created."""
    return (home() / "db").is_dir() or bool(os.environ.get("MSB_BACKEND") or os.environ.get("MSB_PROFILE"))


def version() -> str:
    """The SDK's version; empty if it is not installed."""
    try:
        return distribution_version("microsandbox")
    except PackageNotFoundError:
        return ""


async def load() -> Any:
    """The SDK's module. Raises BackendUnreachable if it is missing, or is set to a cloud account."""
    module = await asyncio.to_thread(_import)
    kind = str(module.default_backend_info().kind)
    if kind != "local":
        raise BackendUnreachable(
            f"microsandbox is set to its {kind} backend, which the console does not speak to",
            hint="unset MSB_BACKEND and MSB_PROFILE",
        )
    return module


def _import() -> Any:
    try:
        import microsandbox
    except ImportError as error:
        raise BackendUnreachable(
            f"the microsandbox package cannot be loaded: {error}", hint="pip install microsandbox"
        ) from error
    return microsandbox


async def result(future: Awaitable[Any]) -> Any:
    """Await one of the SDK's futures, which are not coroutines and which create_task refuses."""
    return await asyncio.ensure_future(future)


@contextmanager
def translated(module: Any, subject: str) -> Iterator[None]:
    """Turn the SDK's errors into the console's. Their texts name sandboxes and paths, never a config."""
    try:
        yield
    except (module.SandboxNotFoundError, module.SandboxReplacedError) as error:
        raise NotFound(f"{subject} is not there (any more)", hint="sandbox-console ls --all") from error
    except (module.ImageNotFoundError, module.PathNotFoundError, FileNotFoundError) as error:
        raise NotFound(f"{subject}: {error}") from error
    except (module.SandboxNotRunningError, module.SandboxStillRunningError) as error:
        raise Conflict(f"{subject}: {error}") from error
    except module.ImageInUseError as error:
        raise Conflict(
            f"{subject}: {error}", hint="remove those sandboxes and snapshots first, or use --force"
        ) from error
    except module.SandboxAlreadyExistsError as error:
        raise Conflict(f"{subject}: the name is taken", hint="choose another name, or remove the other one") from error
    except (module.UnsupportedError, module.UnsupportedOperationError) as error:
        raise Unsupported(f"{subject}: {error}") from error
    except module.InvalidConfigError as error:
        raise UsageError(f"microsandbox refuses {subject}: {_bare(error)}", hint="check its arguments") from error
    except (module.RuntimeNotInstalledError, module.RuntimeIncompleteError) as error:
        raise BackendUnreachable(
            f"microsandbox's runtime is incomplete: {error}", hint="pip install --force-reinstall microsandbox"
        ) from error
    except module.MicrosandboxError as error:
        raise BackendError(f"microsandbox failed on {subject}: {error}", hint="sandbox-console doctor") from error


def _bare(error: Exception) -> str:
    return str(error).removeprefix("invalid config: ")


async def call(module: Any, subject: str, future: Awaitable[Any]) -> Any:
    """Await a call of the SDK with its errors translated; ``subject`` names the thing it is about."""
    with translated(module, subject):
        return await result(future)


async def exists(module: Any, name: str) -> bool:
    """Whether the runtime has a sandbox of this name."""
    try:
        await call(module, name, module.Sandbox.get(name))
    except NotFound:
        return False
    return True


async def handles(module: Any, labels: Mapping[str, str] | None = None) -> list[Any]:
    """Every sandbox's handle, newest first; with ``labels`` only those that have all of them."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        listing = module.Sandbox.list_with(cursor=cursor, limit=PAGE, labels=labels)
        page = await call(module, "its list of sandboxes", listing)
        found += page.sandboxes
        cursor = page.next_cursor
        if cursor is None:
            return found
