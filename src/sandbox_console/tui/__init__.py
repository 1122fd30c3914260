"""The terminal app. Importing this package is cheap: Textual is imported only when the app runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_console.tui.run import Opener


def run_tui(
    *, config_file: Path | None = None, read_only: bool = False, backend: str = "", hosts: Sequence[str] = (),
    opener: Opener | None = None,
) -> int:  # fmt: skip
    """Run the app until it is quit. Returns the exit code. ``hosts`` are selectors as ``--host`` takes them.

    ``opener`` defaults to :func:`sandbox_console.service.open_console`. Raises ConfigError before anything is drawn.
    """
    from sandbox_console.tui.base.gc_pause import gc_paused

    with gc_paused():
        from sandbox_console.tui.run import run

        return asyncio.run(
            run(config_file=config_file, read_only=read_only, backend=backend, hosts=hosts, opener=opener)
        )
