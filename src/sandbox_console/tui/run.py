"""Open a console, show the app on it, and close both."""

from __future__ import annotations

from pathlib import Path

from sandbox_console.service import open_console
from sandbox_console.tui import Opener
from sandbox_console.tui.app import ConsoleApp


async def run(*, config_file: Path | None, read_only: bool, backend: str, opener: Opener | None) -> int:
    """What :func:`sandbox_console.tui.run_tui` does, on a running loop."""
    opened = (opener or open_console)(config_file=config_file, read_only=read_only, only_backend=backend)
    async with opened as console:
        console.shipper.start()
        app = ConsoleApp(console)
        await app.run_async()
        return app.return_code or 0
