"""Runs a sandbox's egress gateway: a listening socket in the sandbox's network, and a process outside behind it.

The sandbox has no network except its loopback. A process that joins the network namespace for an instant creates a
listening socket there and passes it out, so that connections from inside reach the gateway outside.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable

from . import enter, wire
from .helper import Helper, Network
from .loop import Loop

PORT = 3128
_BACKLOG = 1024
_HELPER_S = 10.0


class Gateway(Helper):
    """Runs from before the sandbox's command until the sandbox ends. While the gateway is down, nothing passes."""

    name = "gateway"

    def __init__(self, loop: Loop, order: dict, network: Network) -> None:  # type: ignore[type-arg]
        super().__init__(loop)
        self._order, self._network = order, network
        self._listener = self._inside(_listening)
        self.start()

    def _become(self, line: socket.socket) -> None:
        signal.set_wakeup_fd(-1)
        enter.plain_signals()
        log = os.open(f"{self._order['folder']}/gateway.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 2)
        words = [sys.executable, "-I", "-S", "-X", "utf8", self._order["program"], "serve"]
        words += ["--folder", self._order["folder"], "--fd", str(self._listener.fileno())]
        words += ["--life", str(line.fileno())]
        if self._order["uid"] is not None:
            words += ["--uid", str(self._order["uid"])]
        for fd in (self._listener.fileno(), line.fileno()):
            os.set_inheritable(fd, True)
        enter.close_all_but([0, 1, 2, self._listener.fileno(), line.fileno()])
        os.execve(sys.executable, words, {})

    def stop(self) -> None:
        """End it with the sandbox. It also ends by itself when this process ends."""
        super().stop()
        self._listener.close()

    def door(self) -> socket.socket:
        """A connection to the gateway, like one of a process in the sandbox."""
        return self._inside(_connected)

    def _inside(self, make: Callable[[], socket.socket]) -> socket.socket:
        """A socket created in the sandbox's network. Raises OSError."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            try:
                self._network.join()
                sock = make()
                wire.send(theirs, {"ok": True}, (sock.fileno(),))
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


def _listening() -> socket.socket:
    until = time.monotonic() + _HELPER_S / 2
    while True:
        sock = socket.socket()
        try:
            sock.bind(("127.0.0.1", PORT))
            sock.listen(_BACKLOG)
            return sock
        except OSError:  # bwrap brings the loopback up only a moment after creating the namespace
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
