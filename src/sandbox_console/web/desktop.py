"""The console in a window of its own: a browser without its bars, and the entry in the desktop's menu."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from sandbox_console.errors import Conflict, ConsoleError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.walk import led_by
from sandbox_console.service import find_paths, known_ground
from sandbox_console.web.options import ServeOptions
from sandbox_console.web.run import default_browser, page, stop_signal

_BROWSERS = (
    "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge", "microsoft-edge-stable",
)  # fmt: skip
"""Browsers that have ``--app``, which shows a page without their bars."""
_CLASS = "sandbox-console"
"""The class of the window, by which a desktop knows that it is that of the entry."""
_CLOSE_S = 3.0


def find_app_browser() -> str | None:
    """Return the path of a browser that shows a page as a window of its own; None if there is none.

    Those of snaps are left out, as they cannot read the file that has the link.
    """
    found = (shutil.which(name) for name in _BROWSERS)
    return next((path for path in found if path and not Path(path).resolve().is_relative_to("/snap")
                 and not path.startswith("/snap/")), None)  # fmt: skip


async def run_desktop(options: ServeOptions, say: Callable[[str], None]) -> int:
    """Show the console in a window until it is closed or a signal comes; returns the exit code.

    Without a browser that can do this, the default browser shows it, until a signal comes. Raises ConsoleError.
    """
    known_ground(options.config)  # so that the browser is none that a sandbox has put there
    stopped, browser = stop_signal(), find_app_browser()
    if browser is None:
        say("Chromium, Chrome and Edge were not found: the default browser shows the page")
        async with page(options, say, default_browser(say)):
            await stopped.wait()
        return 0
    window = _Window(browser, stopped)
    async with window, page(options, say, window.show):
        await stopped.wait()
    if window.failed:
        hint = "is there a display? `sandbox-console serve` prints a link for any browser"
        raise ConsoleError(f"{browser} ended with exit code {window.failed}", hint=hint)
    return 0


class _Window(contextlib.AsyncExitStack):
    """A browser with a profile of its own, so that no extension reads the page, and its end is that of the window."""

    def __init__(self, browser: str, closed: asyncio.Event) -> None:
        super().__init__()
        self._browser = browser
        self._closed = closed
        self.failed = 0

    async def show(self, link: str) -> None:
        """Open the window. Sets the event when the user closes it."""
        state = find_paths().state
        profile = self.enter_context(tempfile.TemporaryDirectory(
            prefix="window-", dir=state, ignore_cleanup_errors=True))  # fmt: skip
        words = [self._browser, f"--app={link}", f"--class={_CLASS}", f"--user-data-dir={profile}",
                 "--no-first-run", "--no-default-browser-check"]  # fmt: skip
        null = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            *words, stdin=null, stdout=null, stderr=null, start_new_session=True
        )
        self.push_async_callback(_end, process)
        waiting = asyncio.create_task(self._wait(process))
        self.callback(waiting.cancel)

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        self.failed = await process.wait()
        self._closed.set()


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a browser with the processes that it started."""
    for signum in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _CLOSE_S)


def install() -> Sequence[Path]:
    """Put the entry and its icon where the user's desktop finds them, and return their paths. Raises ConsoleError."""
    guest_folders = known_ground()
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    icon = files("sandbox_console.web").joinpath("static/logo.svg").read_bytes()
    entry = data / "applications" / f"{_CLASS}.desktop"
    picture = data / "icons/hicolor/scalable/apps" / f"{_CLASS}.svg"
    try:
        for path, content in ((picture, icon), (entry, _entry().encode())):
            path.parent.mkdir(parents=True, exist_ok=True)
            _refuse_guests(path, guest_folders)
            new = path.with_name(f".{path.name}.{os.getpid()}")
            new.write_bytes(content)
            new.replace(path)
    except OSError as error:
        raise ConsoleError(f"{error.filename} cannot be written: {error.strerror}") from None
    return entry, picture


def _refuse_guests(path: Path, guest_folders: GuestFolders) -> None:
    """Raise Conflict if a guest can write the file, since the desktop runs the program that the entry names."""
    if root := led_by(path, guest_folders):
        raise Conflict(f"{path} lies in {root}, where a sandbox can write, and your desktop runs what it names")


def _entry() -> str:
    command = shutil.which(_CLASS)
    words = [str(Path(command).absolute())] if command else [sys.executable, "-P", "-m", "sandbox_console"]
    return "\n".join(
        [
            "[Desktop Entry]",
            "Type=Application",
            "Version=1.5",
            "Name=sandbox-console",
            "GenericName=Sandbox console",
            "Comment=See, watch, enter and create the sandboxes that agents run code in",
            f"Exec={' '.join(map(_quoted, [*words, 'desktop']))}",
            "Terminal=false",
            f"Icon={_CLASS}",
            f"StartupWMClass={_CLASS}",
            "Categories=Development;System;Monitor;",
            "Keywords=sandbox;container;docker;bubblewrap;microvm;agent;audit;",
            "",
        ]
    )


def _quoted(word: str) -> str:
    """A word of ``Exec``: quoted by the desktop entry specification, whose strings have escapes of their own."""
    for char in '\\"`$':
        word = word.replace(char, f"\\{char}")
    return f'"{word}"'.replace("\\", "\\\\").replace("%", "%%")
