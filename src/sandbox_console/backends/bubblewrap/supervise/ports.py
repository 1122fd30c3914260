"""Holds a sandbox's published ports on this host, and starts the process that serves them.

The sockets are bound before anything of the sandbox is created, and held here until it has ended. So if an address is
taken, the start fails with nothing to clean up; and if the process behind them ends, clients wait for the next one.
"""

import errno
import gc
import mmap
import os
import select
import socket
import struct

from . import enter, kernel
from .helper import Helper, Network
from .jail import StartFailed
from .loop import Loop
from .relay import Relay

_BACKLOG = 1024
_JOIN_S = 10.0
_READY, _WHY_MOST = "ready", 1024
_END_S = 4.0  # more than a relay takes for the last bytes


class Listener:
    """``port`` of the sandbox is published at ``address`` and ``number`` of this host. Raises StartFailed."""

    def __init__(self, address: str, number: int, port: int) -> None:
        self.address, self.port = address, port
        self.sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            self._listen(number)
        except OSError as error:
            self.sock.close()
            raise _refusal(error, address, number) from error
        self.number: int = self.sock.getsockname()[1]

    def _listen(self, number: int) -> None:
        if self.sock.family == socket.AF_INET6:
            self.sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart need not wait for old connections
        self.sock.bind((self.address, number))
        self.sock.listen(_BACKLOG)
        self.sock.setblocking(False)


def _refusal(error: OSError, address: str, number: int) -> StartFailed:
    address_text = f"[{address}]:{number}" if ":" in address else f"{address}:{number}"
    other = "choose another port of this host, or leave it out for a free one"
    if error.errno == errno.EADDRINUSE:
        return StartFailed(f"{address_text} of this host is taken", hint=other, taken=address_text)
    if error.errno in (errno.EACCES, errno.EPERM):
        return StartFailed(f"{address_text} of this host can only be opened by root", hint=other)
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return StartFailed(f"{address} is not an address of this host", hint="leave it out for 127.0.0.1")
    return StartFailed(f"{address_text} of this host cannot be listened at: {os.strerror(error.errno or 0)}")


class Ports(Helper):
    """All published ports of a sandbox. :meth:`open` starts the process that serves them, before the command."""

    name = "ports"

    def __init__(self, loop: Loop, requested: list[tuple[str, int, int]]) -> None:
        super().__init__(loop)
        self._used = mmap.mmap(-1, 8)  # shared with the relay, which writes here when a byte last passed
        self._listeners: list[Listener] = []
        self._bind(requested)

    def _bind(self, requested: list[tuple[str, int, int]]) -> None:
        try:
            for one in requested:
                self._listeners.append(Listener(*one))
        except StartFailed:
            self._close()
            raise

    @property
    def bound(self) -> list[tuple[str, int, int]]:
        """Address, port of the host, port of the sandbox, as they really are."""
        return [] if self._stopped else [(one.address, one.number, one.port) for one in self._listeners]

    @property
    def used_at(self) -> float:
        """When a byte last passed, by the monotonic clock; 0 for never."""
        return float(struct.unpack("d", self._used)[0])

    def open(self, network: Network) -> None:
        """Start serving. Raises StartFailed if the sandbox's network cannot be joined."""
        self._network = network
        self.start()
        self.line.settimeout(_JOIN_S)
        try:
            reason = self.line.recv(_WHY_MOST).decode(errors="replace")
        except TimeoutError:
            reason = f"no answer within {_JOIN_S:.0f} s"
        if reason != _READY:
            raise StartFailed(f"its ports cannot be published: {reason or 'their process ended'}")

    def _become(self, line: socket.socket) -> None:
        gc.freeze()  # sockets that are released late would close others that reuse their numbers
        places = {one.sock: one.port for one in self._listeners}
        try:
            self._network.join()
            kernel.drop_privileges()
            enter.close_all_but([0, 1, 2, line.fileno(), *(sock.fileno() for sock in places)])
        except OSError as error:
            line.send(str(error).encode())
            return
        line.send(_READY.encode())
        Relay(places, line, lambda now: struct.pack_into("d", self._used, 0, now)).run()

    def shut(self) -> None:
        """Close all ports and cut their connections, while the guest goes on."""
        self._close()
        super().stop()

    def reopen(self) -> None:
        """Open them again where they were. Raises StartFailed, and then they stay closed."""
        if not self._stopped:
            return
        before, self._listeners = self._listeners, []
        try:
            self._bind([(one.address, one.number, one.port) for one in before])
        except StartFailed:
            self._listeners = before
            raise
        self._stopped = False
        self.open(self._network)

    def stop(self) -> None:
        """Close all ports when the guest has ended. For a moment, its last answers still reach the clients."""
        self._close()
        if self.pid:
            self.line.shutdown(socket.SHUT_WR)
            poll = select.poll()
            poll.register(self.line, select.POLLHUP)
            poll.poll(_END_S * 1000)
        super().stop()

    def _close(self) -> None:
        for one in self._listeners:
            one.sock.close()
