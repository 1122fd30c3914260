"""Reads the configuration again when its file changes, while a console is open. A broken one changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sandbox_console.errors import ConfigError
from sandbox_console.model.event import ConfigChanged
from sandbox_console.service.config import Config

LOOK_S = 1.0
"""Seconds between looks at the file. A look is one stat in a thread; editors that replace the file are noticed too."""

LIVE = ("backend", "policy", "secrets", "templates")
"""The parts of the configuration that apply at once. The others apply from the next start on."""


class ConfigReload:
    """Follows the file at ``path``, which ``load`` reads; ``adopt`` gets the live parts of each good one.

    ``publish`` gets a `ConfigChanged` for each change and each problem.
    """

    def __init__(
        self, path: Path, load: Callable[[], Config], begun: Config, adopt: Callable[[Config], None],
        publish: Callable[[ConfigChanged], None],
    ) -> None:  # fmt: skip
        self.path = path
        self._load, self._adopt, self._publish = load, adopt, publish
        self._last = begun
        self._problem = ""
        self._seen = _stamp(path)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look at the file from now on. Does nothing if already looking."""
        if self._task is None:
            self._task = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def read(self, *, own: bool = False) -> None:
        """Read the file now and take what is new. Raises ConfigError, after which the one before is in force.

        ``own`` means that this console has just written it.
        """
        self._seen = await asyncio.to_thread(_stamp, self.path)
        try:
            config = await asyncio.to_thread(self._load)
        except ConfigError as error:
            if error.message != self._problem:
                self._problem = error.message
                self._publish(ConfigChanged(problem=error.message, hint=error.hint))
            raise
        self._take(config, own=own)

    def _take(self, config: Config, *, own: bool) -> None:
        changed = [name for name in Config.__struct_fields__ if getattr(config, name) != getattr(self._last, name)]
        if not changed and not self._problem:
            return
        self._last, self._problem = config, ""
        self._adopt(config)
        now = tuple(name for name in changed if name in LIVE)
        self._publish(ConfigChanged(now=now, later=tuple(name for name in changed if name not in LIVE), own=own))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if await asyncio.to_thread(_stamp, self.path) != self._seen:
                with suppress(ConfigError):
                    await self.read()


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file is written, replaced, or its mode or owner changes; empty if there is none."""
    try:
        st = path.stat()
    except OSError:
        return ()
    return st.st_dev, st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns
