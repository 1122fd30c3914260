"""Holds one shell: its guest, its screen, its recording, its time limit, and its viewers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox_console.background_process import ProcessFolder, peer
from sandbox_console.recording.cast import Pending
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor
from sandbox_console.shell_holder import guest
from sandbox_console.shell_holder.frames import ENDED
from sandbox_console.shell_holder.recorder import Recorder
from sandbox_console.shell_holder.screen import Screen
from sandbox_console.shell_holder.viewer import MOST, Viewer

VIEWERS_MOST = 16
WAIT_S = 0.25
"""How long the guest is held back for viewers that have yet to read what they have."""

_MASK_S = 0.02
"""How long bytes that may begin a secret wait for more, as in service/sessions/shell.py."""

_REST_S = 0.3
"""How long the last output may take to arrive after the shell has exited, while a child of its holds the PTY open."""

_LOOK_S = 30.0
_TELL_S = 2.0


class Holder:
    """One shell. ``facts`` are what the console passes: see ``service/sessions/kept_shells.py``."""

    def __init__(self, process_folder: ProcessFolder, facts: Mapping[str, Any]) -> None:
        self._folder, self._facts = process_folder, facts
        self._loop = asyncio.get_running_loop()
        redactor = Redactor.from_state(facts["redactor"])
        self._across, self._mask = redactor.across, StreamRedactor(redactor, (facts["cols"], facts["rows"]))
        self._screen = Screen(facts["cols"], facts["rows"], facts["scrollback_bytes"])
        self._recorder = _recorder(facts)
        self._viewers: set[Viewer] = set()
        self._bytes = {"in": 0, "out": 0}
        self._flush: asyncio.TimerHandle | None = None
        self._waits: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._end_reason = ""
        self._guest = guest.make(dict(facts), self._output, self._exited)
        self._ends_at = _now() + facts["max_duration_s"]

    async def run(self) -> None:
        """Hold the shell until it ends, is asked to end, or its time is over. Its end is then in its record."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._stop, "its holder was asked to end")
        listener = self._folder.listen(self._facts["id"])
        listener.setblocking(False)
        self._loop.add_reader(listener, self._accept, listener)
        self._look()
        self._guest.read_on()
        await self._over.wait()
        self._loop.remove_reader(listener)
        await self._end(listener)

    async def _end(self, listener: socket.socket) -> None:
        """End the guest, finish the recording, write how it ended, and tell the viewers."""
        end = await self._guest.end()
        self._show(self._mask.flush())
        end |= {"reason": self._end_reason or end.get("reason", ""), "bytes_in": self._bytes["in"]}
        end |= {"bytes_out": self._bytes["out"], "duration_s": round(time.time() - self._facts["record"]["began"], 3)}
        if self._recorder is not None:
            end["recording_problem"] = self._recorder.end(self._across)
        with contextlib.suppress(OSError):  # a full disk: the end is then recorded without its facts
            self._folder.write(
                f"{self._facts['id']}.json", json.dumps({**self._facts["record"], "ended": end}).encode()
            )
        listener.close()
        for viewer in list(self._viewers):
            viewer.say(ENDED, end)
            viewer.close_when_read(_TELL_S)
        while self._viewers:  # noqa: ASYNC110 - each closes when it has been read, or after a moment
            await asyncio.sleep(0.01)

    # what viewers ask for

    def attached(self) -> str:
        """Let a viewer in that has said who it is. Returns why not."""
        if self._over.is_set():
            return "the shell is ending"
        if sum(viewer.is_attached for viewer in self._viewers) > VIEWERS_MOST:
            return f"{VIEWERS_MOST} viewers are attached already"
        self.resized()
        return ""

    def resized(self) -> None:
        """Set the size that fits every viewer that types. Others see what fits into theirs."""
        sizes = [viewer.size for viewer in self._viewers if viewer.is_attached and not viewer.read_only and viewer.size]
        if not sizes:
            return
        cols, rows = min(size[0] for size in sizes), min(size[1] for size in sizes)
        if (cols, rows) != (self._screen.cols, self._screen.rows):
            self._mask.resize(cols, rows)
            self._screen.resize(cols, rows)
            self._guest.resize(cols, rows)
            if self._recorder is not None:
                self._recorder.resize(cols, rows)

    def typed(self, viewer: Viewer, data: bytes) -> bool:
        """Type into the guest. Returns False if the viewer has to wait, because the guest reads nothing."""
        self._bytes["in"] += len(data)
        if self._guest.write(data):
            return True
        self._guest.when_drained(viewer.read_on)
        return False

    def drained(self) -> None:
        """A viewer has read something. If no other holds the guest back, it goes on."""
        if self._waits is not None and not self._slow(MOST // 4):
            self._go_on()

    def left(self, viewer: Viewer) -> None:
        """Forget a viewer that is gone."""
        self._viewers.discard(viewer)
        self.resized()
        self.drained()

    def asked_to_end(self, actor: str, reason: str) -> None:
        """End the shell, because somebody asked for it."""
        self._stop(f"{reason} by {actor}" if actor else reason)

    def state(self) -> dict[str, Any]:
        """What is known of it, for a list."""
        recorder = self._recorder
        return {
            "pid": os.getpid(), "cols": self._screen.cols, "rows": self._screen.rows, "bytes": dict(self._bytes),
            "recorded": recorder is not None and not recorder.problem, "left_s": max(0.0, self._ends_at - _now()),
            "viewers": [{"actor": one.actor, "read_only": one.read_only} for one in self._viewers if one.is_attached],
        }  # fmt: skip

    def snapshot(self) -> bytes:
        """The whole screen with its scrollback."""
        return self._screen.snapshot()

    # what the guest does

    def _output(self, data: bytes) -> None:
        self._bytes["out"] += len(data)
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if not data:
            self._over.set()
            return
        self._show(self._mask.feed(data))
        if self._mask.holding:
            self._flush = self._loop.call_later(_MASK_S, self._show_held)
        if self._waits is None and self._slow(MOST // 2):
            self._guest.hold()
            self._waits = self._loop.call_later(WAIT_S, self._give_up)

    def _show_held(self) -> None:
        self._flush = None
        self._show(self._mask.flush())

    def _show(self, shown: bytes) -> None:
        if not shown:
            return
        if replies := self._screen.feed(shown):
            self._guest.write(replies)
        if self._recorder is not None:
            self._recorder.output(shown)
            if self._recorder.problem and self._recorder.required:
                self._stop(f"the shell cannot be recorded: {self._recorder.problem}")
                return
        for viewer in list(self._viewers):
            if viewer.is_attached:
                viewer.output(shown)

    def _exited(self) -> None:
        self._loop.call_later(_REST_S, self._over.set)

    def _slow(self, limit: int) -> list[Viewer]:
        return [viewer for viewer in self._viewers if viewer.live and viewer.backlog > limit]

    def _give_up(self) -> None:
        """Let the guest go on without those that have read too little."""
        for viewer in self._slow(MOST // 4):
            viewer.fall_behind()
        self._go_on()

    def _go_on(self) -> None:
        if self._waits is not None:
            self._waits.cancel()
            self._waits = None
        self._guest.read_on()

    # its life

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        if peer(connection)[1] != os.geteuid() or len(self._viewers) > 2 * VIEWERS_MOST:
            connection.close()
            return
        self._viewers.add(Viewer(connection, self))

    def _look(self) -> None:
        """Look at the clock and at the recording. The clock counts while the machine sleeps, as timers do not."""
        left = self._ends_at - _now()
        if left <= 0:
            self._stop("its time was over")
            return
        if self._recorder is not None:
            self._recorder.write()
        self._loop.call_later(min(left, 1.0 if self._recorder else _LOOK_S), self._look)

    def _stop(self, reason: str) -> None:
        if not self._over.is_set():
            self._end_reason = reason
            self._over.set()


def _recorder(facts: Mapping[str, Any]) -> Recorder | None:
    asked = facts["recording"]
    if asked is None:
        return None
    return Recorder(Path(asked["path"]), Pending(asked["cap_bytes"], asked["began"]), required=asked["required"])


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)
