"""The supervisor's loop: one sandbox's main command, its output, its time limits, and the clients of its socket."""

import errno
import json
import os
import signal
import socket
import sys
import time
from functools import partial

from . import cgroup, enter, events, kernel, segments, tree, wire
from .commands import Commands
from .freezer import Freezer
from .gateway import Gateway
from .helper import Helper, Network
from .jail import Jail, StartFailed, exit_of, leave_keys
from .loop import Loop
from .ports import Ports
from .requests import Requests
from .state_files import take_lock, write_status
from .time_limits import TimeLimits

_READ = 65536
_END_S = 10.0
_FAILURES_MOST = 100
_HOME_S = 10.0
_HELD_S = 2.0
_LOSSES_S = 1.0  # after the last output that was left out


def main() -> None:
    """Read the order, leave the console's session and its keys, and run the sandbox to its end."""
    kernel.keep_to_itself()
    order = json.loads(sys.stdin.buffer.read())
    Supervisor(order, kernel.detach()).run()


class Supervisor:
    """One sandbox from its start to its end."""

    def __init__(self, order: dict, answer: int) -> None:  # type: ignore[type-arg]
        self.order = order
        self._answer = answer
        self._status = dict(order["status"])
        self.loop = Loop()
        self._waiting: list[socket.socket] = []  # connections to notify when the sandbox has ended
        self._reason = ""
        self._asked: int | None = None  # the signal with which the console ended it
        self._main_status: int | None = None
        self._use(cgroup.Group(1, {}))
        self._began = False
        self._gateway: Gateway | None = None
        self._ports: Ports | None = None
        self._limits = TimeLimits(self.loop, order, self._is_busy, self._end)
        self.commands = Commands(self)
        os.chdir(order["dir"])

    def _use(self, group: cgroup.Group) -> None:
        self.group = group
        self.pausing = Freezer(group, self.processes)

    # -- start

    def run(self) -> None:
        """Start, loop, clean up. Every way out leaves a status on disk."""
        if not take_lock():
            self._report({"running": True})
            return
        try:
            log = self.order["log"]
            self._log = segments.Writer("logs", log["bytes"], log["keep"], log.get("rate", 0))
        except OSError as error:
            self._report({"error": f"its log cannot be written: {os.strerror(error.errno or 0)}", "code": 125})
            return
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        self.loop.on_child(self._wait_children)
        try:
            self._start()
        except (StartFailed, OSError) as error:
            self._fail(error)
            return
        self._report({"ok": True})
        self._check_home()
        self._keep()
        self._finish()

    def _keep(self) -> None:
        """Loop until the main process has ended. A bug here ends the sandbox: it must not live without a supervisor."""
        for failures in range(_FAILURES_MOST):
            try:
                while self._main_status is None:
                    self.loop.turn()
                return
            except Exception as error:  # noqa: BLE001 - whatever it is
                self._reason = self._reason or f"its supervisor failed: {type(error).__name__}: {error}"
                if failures == 0:
                    self._kill_all()

    def _check_home(self) -> None:
        """End if the state folder was deleted, since no console can find this sandbox any more."""
        if os.stat(".").st_nlink == 0:
            self._reason = "its state folder was deleted"
            self._kill_all()
        else:
            self.loop.after("home", _HOME_S, self._check_home)

    def _start(self) -> None:
        leave_keys()
        self._use(cgroup.Group.make(cgroup.find(), self.order["id"]))
        limits = self.order["limits"]
        self.group.limit(memory=limits["memory"], pids=limits["pids"], cpus=limits["cpus"])
        self._joiners = self.group.joiners()
        self._ooms = self.group.oom_kills()
        self._write_status(status="starting", supervisor=os.getpid(), supervisor_start=tree.started(os.getpid()))
        self.requests = Requests(self)
        if requested := self.order["ports"]:
            self._ports = self._limits.ports = Ports(self.loop, requested)
        self._jail = Jail(self.order, self._joiners)
        self._began = True
        self._open_network()
        self._jail.release()
        self._init_fd = tree.pidfd(self._jail.init)
        if not self._jail.main and (failure := self._jail.failed()):
            os.waitpid(self._jail.pid, 0)
            raise failure
        spaces = self._jail.namespaces()
        self.commands.confinement = enter.Confinement(self.order, spaces, self._joiners) if spaces else None
        for fd, kind in ((self._jail.stdout, segments.STDOUT), (self._jail.stderr, segments.STDERR)):
            os.set_blocking(fd, False)
            self.loop.on(fd, partial(self._output, fd, kind))
        self._write_running()
        events.note(".", "start")
        self._limits.begin()

    def _write_running(self) -> None:
        self._write_status(
            status="running",
            started_at=time.time(),
            pid=self._jail.main or None,
            init=self._jail.init,
            cgroups=self.group.folders,
            cgroup_version=self.group.version,
            ports=self._ports.bound if self._ports else [],
        )

    def _open_network(self) -> None:
        """Open the one way out of the sandbox, and the ways in, before the command runs."""
        egress = self.order.get("egress")
        if not egress and not self._ports:
            return
        network = Network(self._jail.init, self.order["uid"])
        if egress:
            self._gateway = Gateway(self.loop, egress, network)
        if self._ports:
            self._ports.open(network)

    @property
    def _kept(self) -> list[Helper]:
        return [one for one in (self._gateway, self._ports) if one is not None]

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, StartFailed):
            error = StartFailed(str(error))
        code = error.code
        if self._began:
            self._kill(self._jail.init, signal.SIGKILL)
            self._kill(self._jail.pid, signal.SIGKILL)
        for helper in self._kept:
            helper.stop()
        self.group.remove()
        self._log.write(segments.STDERR, f"{error}\n".encode())
        Requests.close()
        self._write_status(
            status="failed", finished_at=time.time(), detail=str(error), exit={"code": code, "reason": str(error)}
        )
        events.note(".", "die", str(error), exitCode=str(code))
        self._report({"error": str(error), "code": code, "hint": error.hint, "taken": error.taken})

    def _report(self, message: dict[str, object]) -> None:
        try:
            os.write(self._answer, json.dumps(message).encode())
        except BrokenPipeError:
            pass  # the console that requested it is gone; the status on disk has the result
        os.close(self._answer)

    # -- loop

    def touch(self) -> None:
        """Note that something happened, so that the idle time starts over."""
        self._limits.touch()

    def _is_busy(self) -> bool:
        return self.commands.running or self.pausing.paused

    def _output(self, fd: int, kind: int) -> bool:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if data:
            self._log.write(kind, data)
            if self._log.owes:
                self.loop.after("losses", _LOSSES_S, self._tell_losses)
            self.touch()
        else:
            self.loop.off(fd)
        return bool(data)

    def _tell_losses(self) -> None:
        """Record what was left out last: a sandbox that writes no more would hide the loss until its end."""
        self._log.tell_losses()
        if self._log.owes:
            self.loop.after("losses", _LOSSES_S, self._tell_losses)

    def _wait_children(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):  # a guest can stop a helper, which has its user id; it must not stay stopped
                self._kill(pid, signal.SIGCONT)
            elif pid == self._jail.pid:
                self._main_status = status
            elif helper := next((one for one in self._kept if one.pid == pid), None):
                helper.ended()

    # -- requests

    def lend(self, conn: socket.socket) -> None:
        """Send descriptors of the namespaces in which the sandbox's files can be seen."""
        confinement = self.commands.confinement
        if confinement is None:
            wire.send(conn, {"error": "it has ended"})
        else:
            wire.send(conn, {"spaces": True}, confinement.spaces.for_files)
            self.touch()

    def door(self, conn: socket.socket) -> None:
        """Send a connection to the egress gateway. Raises ValueError if there is no gateway."""
        if self._gateway is None:
            raise ValueError("the sandbox has no gateway")
        with self._gateway.door() as door:
            wire.send(conn, {"ok": True}, (door.fileno(),))

    def publish(self, published: bool) -> None:
        """Open or close its ports. Raises ValueError if it publishes none, StartFailed if an address is taken."""
        if self._ports is None:
            raise ValueError("the sandbox publishes no ports")
        if published:
            self._ports.reopen()
        else:
            self._ports.shut()
        self._write_status(ports=self._ports.bound)

    def stop(self, conn: socket.socket, grace: float) -> None:
        """Send SIGTERM, and SIGKILL after ``grace`` seconds; report the end on the connection."""
        self._waiting.append(conn)
        events.note(".", "stop")
        self._write_status(status="stopping")
        self._terminate(grace)

    def signal(self, conn: socket.socket, number: int) -> None:
        """Signal the main process; SIGKILL ends everything."""
        events.note(".", "kill", signal=str(number))
        if number == signal.SIGKILL:
            self._waiting.append(conn)
            self._asked = int(signal.SIGKILL)
            self._kill_all()
            return
        self._kill(self._jail.main, number)
        wire.send(conn, {"ok": True})

    def _kill_all(self) -> None:
        self.pausing.release()
        self._kill(self._jail.init, signal.SIGKILL)

    @staticmethod
    def _kill(pid: int, number: int) -> None:
        tree.signal_all([pid] if pid else [], number)

    def _end(self, reason: str) -> None:
        if os.path.exists("quarantine"):  # in quarantine: its time is over when it is released
            self.loop.after("held", _HELD_S, lambda: self._end(reason))
            return
        self._reason = reason
        events.note(".", "stop", reason)
        self._write_status(status="stopping", detail=reason)
        self._terminate(self.order["grace_s"])

    def _terminate(self, grace: float) -> None:
        self.pausing.release()
        self._asked = int(signal.SIGTERM)
        self._kill(self._jail.main, signal.SIGTERM)
        self.loop.after("grace", grace, self._kill_all)

    # -- pause

    def freeze(self, frozen: bool) -> None:
        """Pause or resume. Does nothing if it is already in that state."""
        if frozen == self.pausing.paused:
            return
        if frozen:
            self.pausing.pause()
        else:
            self.pausing.resume()
        events.note(".", "pause" if frozen else "unpause")
        self._write_status(status="paused" if frozen else "running")
        self.touch()

    def processes(self) -> list[int]:
        """The guest's processes, without the console's own helpers among them."""
        return [*tree.descendants(self._jail.init), *self.commands.processes()]

    # -- end

    def _finish(self) -> None:
        self._kill(self._jail.init, signal.SIGKILL)
        tree.wait_gone(self._init_fd, _END_S, self._wait_children)  # the helpers among them are our children
        if self._ports:  # an answer may still be on its way for seconds
            self._write_status(status="stopping", ports=[])
        for helper in self._kept:
            helper.stop()
        for fd, kind in ((self._jail.stdout, segments.STDOUT), (self._jail.stderr, segments.STDERR)):
            while self._output(fd, kind):
                pass
        self._log.tell_losses()
        self.commands.close()
        result, memory = self._result(), self.group.memory()
        Requests.close()
        self.group.remove()
        if result["oom"]:
            events.note(".", "oom", **memory)
        events.note(".", "die", self._reason, exitCode=str(result["code"]), signal=str(result["signal"] or ""))
        self._write_status(status="exited", finished_at=time.time(), exit=result, pid=None, cgroups={})
        for conn in self._waiting:
            wire.send(conn, {"ended": result})

    def _result(self) -> dict[str, object]:
        kills = self.group.oom_kills()
        killed = None if kills is None or self._ooms is None else kills > self._ooms
        return exit_of(self._main_status or 0, self._jail.true_status(), self._asked, killed, self._reason)

    def _write_status(self, **changes: object) -> None:
        self._status.update(changes)
        try:
            write_status("status.json", "status.new", self._status)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._log.write(segments.STDERR, b"the disk is full: the sandbox's status could not be written\n")
