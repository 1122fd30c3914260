"""The server: accepts calls, forks a child for each, and ends after a minute without one. It reads and stores nothing.

It only accepts, forks and reaps, so that no caller can delay another. Everything that belongs to a call (arguments,
environment, secrets, connections) is only in the child. It reads no configuration: each child reads its call's own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
import time
from typing import NoReturn

from sandbox_console.background_process import ProcessFolder
from sandbox_console.command_server import child, identity
from sandbox_console.command_server.client import DIED, ENDED

IDLE_S = 60.0


def serve(folder: str, lock: int, run: child.Run, hold: child.Hold, idle_s: float = IDLE_S) -> None:
    """Serve until nobody has called for ``idle_s``, or the code on disk has changed. Raises OSError."""
    _reset_signals()
    os.set_inheritable(lock, False)
    os.umask(0o077)
    key = identity.key()
    process_folder, name = ProcessFolder(folder), identity.name_of(key)
    began, loaded = _began_ns(), child.snapshot()
    if any(state[2] >= began for state in loaded.values()):
        process_folder.leave(name)  # code that is being changed may be partly old and partly new
        return
    gc.collect()
    gc.freeze()  # loaded objects stay shared with the children, because no collection writes to them
    server = _Server(process_folder.listen(name), lock, key, loaded, run, hold)
    try:
        server.run(idle_s)
    finally:
        process_folder.leave(name)
        server.refuse_the_rest()


class _Server:
    def __init__(
        self, listener: socket.socket, lock: int, asked: bytes, loaded: child.Files, run: child.Run, hold: child.Hold
    ) -> None:
        self._listener = listener
        self._lock = lock
        self._asked, self._loaded, self._run, self._hold = asked, loaded, run, hold
        self._calls: dict[int, tuple[int, socket.socket]] = {}
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        # An exception raised by a signal's handler is lost if it comes in a fork, where Python runs other handlers.
        self._woken, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll.register(self._woken, select.POLLIN)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: None)
        listener.setblocking(False)

    def run(self, idle_s: float) -> None:
        while True:
            ready = self._poll.poll(None if self._calls else idle_s * 1000)
            if not ready:
                return
            for number, _ in ready:
                if number == self._listener.fileno():
                    self._accept()
                elif number == self._woken or self._reap(number) == child.STALE_CODE:
                    return

    def refuse_the_rest(self) -> None:
        self._listener.close()
        for process, (_, connection) in self._calls.items():
            os.close(process)
            connection.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        try:
            pid = os.fork()
        except OSError:  # no room for another process: the caller runs the command itself
            connection.close()
            return
        if pid == 0:
            self._child(connection)
        process = os.pidfd_open(pid)
        self._calls[process] = (pid, connection)
        self._poll.register(process, select.POLLIN)

    def _child(self, connection: socket.socket) -> NoReturn:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        os.close(self._woken)
        os.close(self._waker)
        self._listener.close()
        os.close(self._lock)
        for process, (_, other) in self._calls.items():
            os.close(process)
            other.close()
        child.carry_out(connection, self._asked, self._loaded, self._run, self._hold)

    def _reap(self, process: int) -> int:
        """Report a child's end, if it was killed or ended by a second signal and did not report it itself."""
        pid, connection = self._calls.pop(process)
        self._poll.unregister(process)
        os.close(process)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        with connection, contextlib.suppress(OSError):
            if code:
                connection.send(DIED + bytes([-code]) if code < 0 else ENDED + bytes([code]), socket.MSG_DONTWAIT)
        return code


def _began_ns() -> int:
    """When this process started, by the clock of file times. The kernel counts it in ticks since the boot."""
    with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - (ticks - 1) / os.sysconf("SC_CLK_TCK")
    return time.time_ns() - int(age * 1e9)


def _reset_signals() -> None:
    """Reset the signals that the starting process ignored or blocked, because each call brings its own."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for signum in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCHLD):
        signal.signal(signum, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
