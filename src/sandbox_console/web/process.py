"""The app process of a browser session, which is started without a shell and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from sandbox_console.model.cancellation import shielded
from sandbox_console.model.text import clean
from sandbox_console.web.environment import app_environment

START_S = 30.0
"""Seconds after which an app that has not announced itself is given up."""
GRACE_S = 3.0
"""The times between the request to quit, SIGTERM and SIGKILL."""
_STDERR_KEPT = 8192
_PRELUDE = b"__GANGLION__\n"
_PRELUDE_LINES = 10
_POLL_S = 0.1


class AppProcess(AppService):
    """An AppService with an argument list, a small environment and a process group of its own."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        actor: str,
        person: str,
        pass_env: Sequence[str],
        write_bytes: Callable[[bytes], Awaitable[None]],
        write_str: Callable[[str], Awaitable[None]],
        ended: Callable[[str], Awaitable[None]],
        downloads: DownloadManager,
    ) -> None:
        super().__init__(
            command[0],
            write_bytes=write_bytes,
            write_str=write_str,
            close=self._asked_to_close,
            download_manager=downloads,
        )
        self._argv = list(command)
        self._actor, self._person = actor, person
        self._pass_env = pass_env
        self._ended = ended
        self._stderr = b""
        self.by_touch = False
        """Whether a finger points at it. Set before it is started."""
        self.faults = 0
        """How many faults the app shows, as it said last."""
        self._ending: asyncio.Task[None] | None = None

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        return app_environment(
            width, height, self._actor, person=self._person, by_touch=self.by_touch, more=self._pass_env
        )

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height),
            start_new_session=True,
        )
        self._stdin = self._process.stdin
        return self._process

    @property
    def is_new(self) -> bool:
        """Whether it was never started."""
        return self._process is None

    async def repaint(self, away_s: float | None = None) -> None:
        """Request that the app redraws its whole screen, for another terminal. ``away_s`` is how long nobody looked."""
        await self.send_meta({"type": "repaint", "away_ms": None if away_s is None else round(away_s * 1000)})

    async def run(self) -> None:
        """Pass on the app's packets until it ends, then clean up its processes and report why it ended."""
        process = self._running()
        reading = asyncio.create_task(self._read(process))
        stderr = asyncio.create_task(self._read_stderr(process))
        try:
            await _either(reading, process)
        finally:
            await self._end_processes()
            await _cancelled(reading, stderr)
            # A stray descendant may hold the pipes open, and asyncio has no public way to close them.
            process._transport.close()  # type: ignore[attr-defined]  # noqa: SLF001
        late = reading.done() and not reading.cancelled() and reading.result()
        await self._ended(late or self._exit_reason())

    async def stop(self) -> None:
        """End the app and every process of its group: ask, SIGTERM, SIGKILL."""
        task, self._task = self._task, None
        if task is None:
            return
        await self._download_manager.cancel_app_downloads(app_service_id=self.app_service_id)
        await self._end_processes()
        await task

    async def on_meta(self, data: bytes) -> None:
        """Pass a copy made by the app to the page. Other messages are handled by textual-serve."""
        try:
            meta: dict[str, Any] = json.loads(data)
        except ValueError:
            return
        if meta.get("type") == "copy":
            await self.remote_write_str(json.dumps(["copy", str(meta.get("text", ""))]))
        elif meta.get("type") == "faults" and isinstance(count := meta.get("count"), int):
            self.faults = count
            await self.remote_write_str(json.dumps(["faults", count]))
        elif meta.get("type") in {"pick_files", "free_drag"}:
            await self.remote_write_str(json.dumps([meta["type"], None]))
        elif meta.get("type") in {"exit", "open_url", "deliver_file_start"}:
            await super().on_meta(data)

    def stderr_lines(self) -> list[str]:
        """The last lines that the app wrote to its standard error, safe to show."""
        return [clean(line) for line in self._stderr.decode("utf-8", "replace").splitlines()[-20:]]

    async def _asked_to_close(self) -> None:
        """Handle the app's announcement that it is ending, for which it has the usual grace."""
        self._begin_ending()

    async def _read(self, process: Process) -> str:
        stdout = _stream(process.stdout)
        try:
            async with asyncio.timeout(START_S):
                await _read_prelude(stdout)
            await self._read_packets(stdout)
        except TimeoutError:
            return f"the app did not start within {START_S:.0f} s"
        except (EOFError, ConnectionError, ValueError):
            pass
        return ""

    async def _read_packets(self, stdout: asyncio.StreamReader) -> None:
        handlers = {b"D": self.on_data, b"M": self.on_meta, b"P": self.on_packed}
        while True:
            kind = await stdout.readexactly(1)
            size = int.from_bytes(await stdout.readexactly(4), "big")
            payload = await stdout.readexactly(size)
            if handler := handlers.get(kind):
                await handler(payload)

    async def _read_stderr(self, process: Process) -> None:
        stream = _stream(process.stderr)
        while data := await stream.read(4096):
            self._stderr = (self._stderr + data)[-_STDERR_KEPT:]

    async def _end_processes(self) -> None:
        """End the group once, however many callers there are. A caller's cancellation does not stop this."""
        await shielded(self._begin_ending())

    def _begin_ending(self) -> asyncio.Task[None]:
        if self._ending is None:
            self._ending = asyncio.create_task(self._escalate(self._running()))
        return self._ending

    async def _escalate(self, process: Process) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await self.send_meta({"type": "quit"})
                await _gone(process)
        for signum in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                _signal_group(process.pid, signum)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(_gone(process), GRACE_S)
        _signal_group(process.pid, signal.SIGKILL)

    def _exit_reason(self) -> str:
        code = self._running().returncode
        if code == 0:
            return "the console has quit"
        how = f"{'signal' if code and code < 0 else 'exit code'} {abs(code or 0)}"
        return f"the app ended with {how}; the server's terminal says more"

    def _running(self) -> Process:
        if self._process is None:
            raise RuntimeError("the app was not started")
        return self._process


async def _gone(process: Process) -> None:
    # Process.wait() also waits for the pipes, which a stray descendant can hold open.
    while process.returncode is None:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)


async def _either(reading: asyncio.Task[str], process: Process) -> None:
    """Wait for the end of the app's output or, half a second longer for what is in the pipe, of the app itself."""
    gone = asyncio.create_task(_gone(process))
    try:
        await asyncio.wait({reading, gone}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({reading}, timeout=0.5)
    finally:
        await _cancelled(gone)


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _read_prelude(stdout: asyncio.StreamReader) -> None:
    for _ in range(_PRELUDE_LINES):
        if await stdout.readline() == _PRELUDE:
            return
    raise EOFError


def _stream(reader: asyncio.StreamReader | None) -> asyncio.StreamReader:
    if reader is None:
        raise RuntimeError("the app was started without pipes")
    return reader


def _signal_group(leader: int, signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signum)
