"""A helper process that runs for as long as its sandbox does."""

import os
import signal
import socket
import time

from . import enter, events, kernel
from .loop import Loop

_AGAIN_S, _AGAIN_MOST_S = 0.1, 5.0
_STEADY_S = 10.0


class Network:
    """A sandbox's network namespace, and the user namespace that owns it."""

    def __init__(self, init: int, uid: int | None) -> None:
        self._uid = uid
        self._net = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._owner = kernel.owner_namespace(self._net)

    def join(self) -> None:
        """Become the sandbox's user, untraceable, and join the namespaces. Call it in a process forked for this."""
        signal.set_wakeup_fd(-1)
        enter.become(self._uid)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.setns(self._owner)
        kernel.setns(self._net)


class Helper:
    """A process that is restarted if it ends too early: soon at first, less often if it fails repeatedly."""

    name: str

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._wait = _AGAIN_S
        self._stopped = False
        self.pid = 0

    def start(self) -> None:
        """Start the process; :meth:`ended` reports its end."""
        if self._stopped or self.pid:
            return
        self.line, theirs = socket.socketpair()  # it ends when the other end is closed, and therefore with this process
        self._began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become(theirs)
            finally:
                os._exit(125)
        theirs.close()

    def _become(self, line: socket.socket) -> None:
        """The process's own code; it does not return."""
        raise NotImplementedError

    def ended(self) -> None:
        """Handle the end of the process, which was killed or failed and has been waited for."""
        self.line.close()
        self.pid = 0
        events.note(".", f"{self.name}_end")
        self._wait = _AGAIN_S if time.monotonic() - self._began > _STEADY_S else min(self._wait * 2, _AGAIN_MOST_S)
        self._loop.after(self.name, self._wait, self._again)

    def _again(self) -> None:
        try:
            self.start()
            events.note(".", f"{self.name}_start")
        except OSError:  # this host has no room for a process; the sandbox goes on
            self._loop.after(self.name, _AGAIN_MOST_S, self._again)

    def stop(self) -> None:
        """End it with the sandbox."""
        self._stopped = True
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.line.close()
            self.pid = 0
