"""Watches the sandboxes and reports changes as events, without polling.

The kernel reports writes to the runtime's database (inotify) and the end of a microVM's process (pidfd), and the
runtime reports the end of a main process. On systems other than Linux, the database's timestamps are checked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from sandbox_console.backends.common import notify
from sandbox_console.backends.common.polling import differences
from sandbox_console.backends.microsandbox import sdk
from sandbox_console.backends.microsandbox.inventory import Inventory
from sandbox_console.errors import ConsoleError
from sandbox_console.model.event import BackendEvent, HealthChanged
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef, Status

LOOK_S = 2.0
"""How often to check if the kernel reports nothing: before the first use, and on macOS. It takes three stat() calls."""

SOON_S = 0.3
"""How often to check while a sandbox starts or stops, as its main process is not in the database."""

SETTLE_S = 0.05
"""The runtime writes several times for one change."""

AGAIN_S = 5.0
"""After this long, a microVM that could not be shut down, or did not answer, is tried again."""

Retire = Callable[[SandboxRef], Awaitable[bool]]


class Watch:
    """One watcher. ``retire`` shuts down a microVM whose main process has ended; False means to try again."""

    def __init__(self, looker: Inventory, health: Callable[[], Awaitable[BackendHealth]], retire: Retire) -> None:
        self._looker, self._health, self._retire = looker, health, retire
        self._wake = asyncio.Event()
        self._between = False
        self._ends: dict[SandboxRef, asyncio.Task[None]] = {}
        self._pids: dict[int, int] = {}
        self._folders: notify.Folders | None = None
        self._hearing: asyncio.Task[None] | None = None

    async def events(self) -> AsyncGenerator[BackendEvent, None]:
        """Health and the list first, then each change."""
        reported: BackendHealth | None = None
        known: dict[SandboxRef, Sandbox] | None = None
        try:
            while True:
                self._wake.clear()
                await self._listen()
                began = time.monotonic()
                health, now = await self._look()
                took_s = time.monotonic() - began
                if health != reported:
                    reported = health
                    yield HealthChanged(health)
                if now is not None:
                    for event in differences(("microsandbox", "local"), known, now):
                        yield event
                    known = now
                    self._follow_ends(now.values())
                    self._between = any(
                        sandbox.status in (Status.STARTING, Status.STOPPING) for sandbox in now.values()
                    )
                await self._rest(took_s)
        finally:
            await self._close()

    async def _look(self) -> tuple[BackendHealth, dict[SandboxRef, Sandbox] | None]:
        health = await self._health()
        try:
            return health, {sandbox.ref: sandbox for sandbox in await self._looker.list()}
        except ConsoleError as error:
            down = BackendHealth(health.backend, health.host, HealthState.UNREACHABLE, error.message, error.hint)
            return (down if health.ok else health), None

    async def _rest(self, took_s: float) -> None:
        """Wait until something happens. After a slow check it waits as long, so checks take half the time at most."""
        limit = None if self._hearing is not None else LOOK_S
        limit = max(SOON_S, 3 * took_s) if self._between else limit
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await self._wake.wait()
        await asyncio.sleep(max(SETTLE_S, took_s))

    async def _listen(self) -> None:
        """Watch the folders, once they exist."""
        folder = sdk.home() / "db"
        if self._hearing is not None or sys.platform != "linux" or not await asyncio.to_thread(folder.is_dir):
            return
        self._folders = notify.Folders(notify.MODIFY | notify.STATE, poll_s=LOOK_S)
        self._folders.add("db", folder)
        await asyncio.to_thread(self._prepare, self._looker.pending.folder)
        self._folders.add("pending", self._looker.pending.folder)
        self._hearing = asyncio.create_task(self._hear(self._folders))

    @staticmethod
    def _prepare(folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def _hear(self, folders: notify.Folders) -> None:
        while True:
            if await folders.changed():
                self._wake.set()

    def _follow_ends(self, sandboxes: Iterable[Sandbox]) -> None:
        there = {sandbox.ref: sandbox for sandbox in sandboxes}
        for ref in [ref for ref in self._ends if ref not in there or self._ends[ref].done()]:
            self._ends.pop(ref).cancel()
        for ref, sandbox in there.items():
            if sandbox.pid is not None:
                self._follow_process(sandbox.pid)
            live = sandbox.status in (Status.RUNNING, Status.STARTING) or ref in self._looker.lingering
            if ref not in self._ends and sandbox.managed and live:
                self._ends[ref] = asyncio.create_task(self._main_ends(ref))

    async def _main_ends(self, ref: SandboxRef) -> None:
        """Wake when the main process ends, and shut its microVM down with whatever it has left running."""
        over = False
        with contextlib.suppress(ConsoleError):
            module = await sdk.load()
            handle = await self._looker.handle(module, ref)
            info = await self._looker.main(module, handle)
            if info is None:
                return
            job = await sdk.call(module, "its main process", handle.get_job(info.id))
            await sdk.call(module, "its main process", job.wait())
            self._wake.set()
            over = await self._retire(ref)
        if not over:
            await asyncio.sleep(AGAIN_S)
        self._wake.set()

    def _follow_process(self, pid: int) -> None:
        if pid in self._pids or not hasattr(os, "pidfd_open"):
            return
        with contextlib.suppress(OSError):  # it has ended meanwhile: the list shows it
            self._pids[pid] = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._pids[pid], self._process_ended, pid)

    def _process_ended(self, pid: int) -> None:
        descriptor = self._pids.pop(pid)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._wake.set()

    async def _close(self) -> None:
        for pid in list(self._pids):
            self._process_ended(pid)
        tasks: list[asyncio.Task[Any]] = [*self._ends.values(), *([self._hearing] if self._hearing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._folders is not None:
            self._folders.close()
