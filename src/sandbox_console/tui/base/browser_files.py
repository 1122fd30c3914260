"""Files between the app and the browser that shows it: what is saved is downloaded there, and nothing stays here."""

from __future__ import annotations

import asyncio
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from textual.app import App

from sandbox_console.service import find_paths

Parts = Callable[[], Iterable[bytes]]


def downloads(app: App[Any]) -> bool:
    """Whether files go to a browser, and not to this machine."""
    return app.is_web


def refused_by_relay(app: App[Any]) -> bool:
    """Whether the app is shown through a relay, which passes no files on. Then the user is told."""
    refused = app.is_web and not getattr(app._driver, "passes_files", False)  # noqa: SLF001 - has no public name
    if refused:
        app.notify("The relay passes no files on. sandbox-console serve does.", severity="warning")
    return refused


async def send_parts(app: App[Any], name: str, parts: Parts) -> int:
    """Send bytes to the browser as a file of this name. Returns their number. Raises OSError."""
    file, count = await asyncio.to_thread(_spooled, parts)
    app.deliver_binary(file, save_directory=Path("/"), save_filename=name)
    return count


async def send_path(app: App[Any], path: Path) -> str:
    """Send a file to the browser, or a folder as a tar. Returns the name that it has there. Raises OSError."""
    name = path.name if path.is_file() else f"{path.name}.tar"
    file = await asyncio.to_thread(_opened, path)
    app.deliver_binary(file, save_directory=Path("/"), save_filename=name)
    return name


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder of mode 0700 for what is on its way. It is removed at the end."""
    state = find_paths().state
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="download-", dir=state) as folder:
        yield Path(folder)


def _unnamed() -> BinaryIO:
    state = find_paths().state
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    return cast("BinaryIO", tempfile.TemporaryFile(prefix="download-", dir=state))


def _spooled(parts: Parts) -> tuple[BinaryIO, int]:
    file = _unnamed()
    try:
        return file, sum(file.write(part) for part in parts())
    except BaseException:
        file.close()
        raise


def _opened(path: Path) -> BinaryIO:
    if path.is_file() and not path.is_symlink():
        return path.open("rb")
    file = _unnamed()
    try:
        with tarfile.open(fileobj=file, mode="w|", dereference=False) as archive:
            archive.add(path, path.name, filter=_anonymous)
    except BaseException:
        file.close()
        raise
    return file


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without this machine's users."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
