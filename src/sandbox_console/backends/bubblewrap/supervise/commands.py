"""Commands beside the main one: each has a connection to its caller, and ends with it."""

import os
import signal
import socket

from . import tree, wire

TYPE_CHECKING = False  # the typing module costs 1 MB
if TYPE_CHECKING:
    from typing import Protocol

    from .cgroup import Group
    from .freezer import Freezer
    from .loop import Loop
    from .requests import Requests
    from .spare import Spare

    class Keeper(Protocol):
        """What a command needs from the supervisor."""

        loop: Loop
        group: Group
        pausing: Freezer
        requests: Requests
        spare: Spare

        def forget(self, guest: "Guest") -> None: ...


class Guest:
    """One command, from its start to its end. Its tree is killed if its connection closes before it ends."""

    def __init__(self, keeper: "Keeper", conn: socket.socket, report: socket.socket, helper: int) -> None:
        self._keeper, self._conn, self._report = keeper, conn, report
        self.helper = helper  # 0 until it is known
        self.ended = False
        self._began = False
        self._terminal = False
        self._connected = True
        self._ooms = keeper.group.oom_kills()
        keeper.loop.off(conn.fileno())
        keeper.loop.on(conn.fileno(), self._asked)
        keeper.loop.on(report.fileno(), self._told)

    def _told(self) -> None:
        message, fds = wire.receive(self._report)
        if message is None:
            self._gone()
            return
        if "helper" in message:
            self.helper = int(str(message["helper"]))
            return
        self._terminal = self._terminal or "terminal" in message
        self._began = self._began or "terminal" not in message
        if "exit" in message:
            message = {"exit": self._exit(int(str(message["exit"])))}
        if "exit" in message or "failed" in message:
            self.ended = True
        self._tell(message, tuple(fds))
        for fd in fds:
            os.close(fd)
        if "started" in message:
            self._keeper.spare.prepare_soon()
        elif "exit" in message:
            self._keeper.spare.prepare()

    def _tell(self, message: dict[str, object], fds: tuple[int, ...] = ()) -> None:
        if self._connected:
            wire.send(self._conn, message, fds)

    def _asked(self) -> None:
        message, fds = wire.receive(self._conn)
        for fd in fds:
            os.close(fd)
        if message is None:
            self._connected = False
            self._keeper.requests.drop(self._conn)
        if message is None and self.ended and not self._terminal:
            return  # what a command left running on purpose stays; a shell ends with all that it started
        self._kill()

    def _kill(self) -> None:
        """Kill the tree in several sweeps, as a process may fork between being seen and being killed.

        This goes on until the command has started: before that, its helper may have no child yet.
        """
        if not self.helper:
            if not self._report._closed:  # type: ignore[attr-defined] # noqa: SLF001 - it is about to be known
                self._keeper.loop.after(f"kill {id(self)}", 0.005, self._kill)
            return
        self._keeper.pausing.calm(True)
        try:
            found = tree.descendants(self.helper)
            tree.signal_all(found, signal.SIGSTOP)
            found = tree.descendants(self.helper)
            tree.signal_all(found, signal.SIGKILL)
        finally:
            self._keeper.pausing.calm(False)
        paused = self._keeper.pausing.paused
        if found and paused:  # a frozen process does nothing, and dies when it is resumed
            self._told_end()
        if found or not (self._began or self._report._closed):  # type: ignore[attr-defined] # noqa: SLF001 - as above
            self._keeper.loop.after(f"kill {id(self)}", 0.5 if paused else 0.005, self._kill)

    def _gone(self) -> None:
        """Handle the end of the helper: nothing of the command is left."""
        self._keeper.loop.off(self._report.fileno())
        self._report.close()
        self._told_end()
        self.helper = 0
        self._keeper.forget(self)

    def _told_end(self) -> None:
        if not self.ended:
            self.ended = True
            self._tell({"exit": {"code": 137, "signal": 9, "reason": "its processes were killed"}})
        self._tell({"gone": True})
        if self._connected:
            self._connected = False
            self._keeper.requests.drop(self._conn)

    def sandbox_ended(self) -> None:
        """Read the helper's last report, then close."""
        self._report.setblocking(False)
        try:
            while not self._report._closed:  # type: ignore[attr-defined] # noqa: SLF001 - closed by _gone
                self._told()
        except BlockingIOError:
            self._gone()

    def _exit(self, status: int) -> dict[str, object]:
        code = os.waitstatus_to_exitcode(status)
        kills = self._keeper.group.oom_kills() if code == -signal.SIGKILL else None
        killed = None if kills is None or self._ooms is None else kills > self._ooms
        reason = "out of memory" if killed else ""
        number = -code if code < 0 else None
        return {"code": code if code >= 0 else 128 - code, "signal": number, "oom": killed, "reason": reason}
