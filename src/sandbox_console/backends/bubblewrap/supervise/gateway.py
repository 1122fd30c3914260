"""The keeper of a sandbox's egress gateway: a door inside the sandbox's own network, and a process outside behind it.

The sandbox has no network but its loopback. A socket that listens there is made by a process that joins the network
namespace for an instant, and is handed out: whoever connects to it inside talks to the gateway outside.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from . import enter, kernel, wire

TYPE_CHECKING = False  # the typing module costs 1 MB
if TYPE_CHECKING:
    from .main import Supervisor

PORT = 3128
_BACKLOG = 1024
_HELPER_S = 10.0
_AGAIN_S, _AGAIN_MOST_S = 0.1, 5.0
_STEADY_S = 10.0


class Gateway:
    """Runs from before the sandbox's command until the sandbox ends; a gateway that ends meanwhile is started again."""

    def __init__(self, keeper: "Supervisor", order: dict, uid: int | None, init: int) -> None:  # type: ignore[type-arg]
        self._keeper, self._order, self._uid = keeper, order, uid
        self._net = os.open(f"/proc/{init}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self._owner = kernel.owner_namespace(self._net)
        self._listener = self._inside(_listening)
        self._life = -1
        self._wait = _AGAIN_S
        self._stopped = False
        self.pid = 0
        self.start()

    def start(self) -> None:
        """Start the process; its end is told by :meth:`ended`."""
        if self._stopped:
            return
        life, self._life = os.pipe()
        self._began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._become(life)
            finally:
                os._exit(125)
        os.close(life)

    def _become(self, life: int) -> None:
        signal.set_wakeup_fd(-1)
        enter.plain_signals()
        log = os.open(f"{self._order['folder']}/gateway.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 2)
        words = [sys.executable, "-I", "-S", "-X", "utf8", self._order["program"], "serve"]
        words += ["--folder", self._order["folder"], "--fd", str(self._listener.fileno()), "--life", str(life)]
        if self._order["uid"] is not None:
            words += ["--uid", str(self._order["uid"])]
        for fd in (self._listener.fileno(), life):
            os.set_inheritable(fd, True)
        enter.close_all_but([0, 1, 2, self._listener.fileno(), life])
        os.execve(sys.executable, words, {})

    def ended(self) -> None:
        """It was killed or failed: nothing passes until it is back, soon at first and less often if it fails again."""
        os.close(self._life)
        self._life, self.pid = -1, 0
        self._wait = _AGAIN_S if time.monotonic() - self._began > _STEADY_S else min(self._wait * 2, _AGAIN_MOST_S)
        self._keeper.loop.after("gateway", self._wait, self.start)

    def stop(self) -> None:
        """End it with the sandbox; it also ends by itself when this process does."""
        self._stopped = True
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.close(self._life)
        self._listener.close()

    def door(self) -> socket.socket:
        """A connection to the gateway as a process of the sandbox has it."""
        return self._inside(_connected)

    def _inside(self, make: Callable[[], socket.socket]) -> socket.socket:
        """A socket that is made in the sandbox's network. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                self._join()
                made = make()
                wire.send(theirs, {"ok": True}, (made.fileno(),))
            except BaseException as error:  # noqa: BLE001 - nothing may return into the supervisor's loop
                wire.send(theirs, {"error": str(error)})
            finally:
                os._exit(0)
        theirs.close()
        ours.settimeout(_HELPER_S)
        try:
            message, fds = wire.receive(ours)
        finally:
            ours.close()
        if not message or not fds:
            raise OSError(f"the sandbox's network cannot be joined: {(message or {}).get('error', 'no answer')}")
        return socket.socket(fileno=fds[0])

    def _join(self) -> None:
        signal.set_wakeup_fd(-1)
        enter.become(self._uid)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        kernel.setns(self._owner)
        kernel.setns(self._net)


def _listening() -> socket.socket:
    until = time.monotonic() + _HELPER_S / 2
    while True:
        sock = socket.socket()
        try:
            sock.bind(("127.0.0.1", PORT))
            sock.listen(_BACKLOG)
            return sock
        except OSError:  # bwrap brings the loopback up a moment after it has made the namespace
            sock.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.002)


def _connected() -> socket.socket:
    sock = socket.socket()
    sock.settimeout(_HELPER_S / 2)
    sock.connect(("127.0.0.1", PORT))
    sock.settimeout(None)
    return sock
