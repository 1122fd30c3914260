"""Commands alongside the main one: each has a connection to its caller, and ends with it."""

import os
import signal
import socket

from . import enter, events, tree, wire
from .spare import Spare

TYPE_CHECKING = False  # the typing module costs 1 MB
if TYPE_CHECKING:
    from typing import Protocol

    from .cgroup import Group
    from .freezer import Freezer
    from .loop import Loop
    from .requests import Requests

    class Keeper(Protocol):
        """What commands need from the supervisor."""

        loop: Loop
        group: Group
        pausing: Freezer
        requests: Requests

        def touch(self) -> None: ...


class Commands:
    """The commands of one sandbox. None is started while ``confinement`` is None: before its start, after its end."""

    def __init__(self, keeper: "Keeper") -> None:
        self._keeper = keeper
        self._guests: set[Guest] = set()
        self.confinement: enter.Confinement | None = None
        self.spare = Spare(keeper.loop, self._enter_ahead)

    def start(self, conn: socket.socket, fds: list[int]) -> None:
        """Run a command alongside the main one."""
        message = wire.from_memfd(fds.pop(0))
        confinement, paused = self.confinement, self._keeper.pausing.paused
        if confinement is None or paused:
            wire.send(conn, {"error": "the sandbox is paused" if paused else "it has ended"})
            return
        request = enter.ExecRequest(message, confinement)
        helper, report = (self.spare.take(message, fds) if fds else None) or (0, self._enter(request, fds))
        self._guests.add(Guest(self._keeper, self, conn, report, helper))
        events.note(".", "exec_start", events.program(request.candidates[0][0]))
        self._keeper.touch()

    @staticmethod
    def _enter(request: enter.ExecRequest, fds: list[int]) -> socket.socket:
        report, requests = enter.start(request.confinement, request, fds or [0, 0, 0])
        requests.close()
        return report

    def _enter_ahead(self) -> tuple[socket.socket, socket.socket]:
        if self.confinement is None:
            raise ProcessLookupError
        return enter.start(self.confinement, None, [0, 0, 0])

    @property
    def running(self) -> bool:
        """Whether any has not ended."""
        return any(not guest.ended for guest in self._guests)

    def processes(self) -> list[int]:
        """Their processes, without the helpers that started them."""
        return [pid for guest in self._guests if guest.helper for pid in tree.descendants(guest.helper)]

    def forget(self, guest: "Guest") -> None:
        """Handle the end of a command and everything that it started."""
        self._guests.discard(guest)
        self._keeper.touch()

    def close(self) -> None:
        """Start no more, whatever a command still reports, and end all of them: the sandbox has ended."""
        self.confinement = None
        self.spare.drop()
        for guest in list(self._guests):
            guest.sandbox_ended()


class Guest:
    """One command, from its start to its end. Its tree is killed if its connection closes before it ends."""

    def __init__(
        self, keeper: "Keeper", commands: Commands, conn: socket.socket, report: socket.socket, helper: int
    ) -> None:
        self._keeper, self._commands, self._conn, self._report = keeper, commands, conn, report
        self.helper = helper  # 0 until it is known
        self.ended = False
        self._began = False
        self._terminal = False
        self._connected = True
        self._ooms = keeper.group.oom_kills()
        keeper.loop.off(conn.fileno())
        keeper.loop.on(conn.fileno(), self._asked)
        keeper.loop.on(report.fileno(), self._read_report)

    def _read_report(self) -> None:
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
            self._commands.spare.prepare_soon()
        elif "exit" in message:
            self._commands.spare.prepare()

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
        self._commands.forget(self)

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
                self._read_report()
        except BlockingIOError:
            self._gone()

    def _exit(self, status: int) -> dict[str, object]:
        code = os.waitstatus_to_exitcode(status)
        kills = self._keeper.group.oom_kills() if code == -signal.SIGKILL else None
        killed = None if kills is None or self._ooms is None else kills > self._ooms
        reason = "out of memory" if killed else ""
        number = -code if code < 0 else None
        return {"code": code if code >= 0 else 128 - code, "signal": number, "oom": killed, "reason": reason}
