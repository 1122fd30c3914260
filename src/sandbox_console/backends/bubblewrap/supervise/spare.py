"""Keeps a process waiting in the sandbox for a command, so that the next command starts without three forks.

It is confined by the steps that every command takes; neither it nor the helper above it has a privilege while it waits.
One is started after a command has run, and ends if no other comes for a while: an idle sandbox has no process of the
console's in it. The guest may kill it, and then the next command is started like the first one.
"""

import json
import os
import select
import socket
from collections.abc import Callable

from . import wire
from .loop import Loop

_SOON_S = 0.05
"""The delay after the start of a command, so that a short command's end is reported first: a fork takes 0.5 ms."""
_KEPT_S = 20.0


class Spare:
    """At most one spare. ``make`` starts it, and returns the sockets of its helper's reports and of its request."""

    def __init__(self, loop: Loop, make: Callable[[], tuple[socket.socket, socket.socket]]) -> None:
        self._loop, self._make = loop, make
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._helper = 0

    def prepare_soon(self) -> None:
        """Start a spare a little later."""
        self._loop.after("spare", _SOON_S, self.prepare)

    def prepare(self) -> None:
        """Start a spare and keep it for a while. A host without room for another process gets none."""
        if self._sockets is None:
            try:
                self._sockets = self._make()
            except OSError:
                return
            self._helper = 0
            self._loop.on(self._sockets[0].fileno(), self._read_report)
        self._loop.after("spare", _KEPT_S, self.drop)

    def _read_report(self) -> None:
        """Read the process id that its helper reports; anything else means that it has ended."""
        if self._sockets is None:
            return
        message, fds = wire.receive(self._sockets[0])
        for fd in fds:
            os.close(fd)
        if message and "helper" in message:
            self._helper = int(str(message["helper"]))
        else:
            self.drop()

    def take(self, request: dict[str, object], stdio: list[int]) -> tuple[int, socket.socket] | None:
        """Send it a command. Returns the helper's pid (0 if not known yet) and socket; None if there is no spare."""
        if self._sockets is not None and _readable(self._sockets[0]):
            self._read_report()
        if self._sockets is None or len(json.dumps(request)) > wire.PACKET:  # a longer message would arrive cut off
            return None
        report, requests = self._sockets
        self._loop.off(report.fileno())
        self._sockets = None
        with requests:
            if wire.send(requests, request, tuple(stdio)):
                return self._helper, report
        report.close()
        return None

    def drop(self) -> None:
        """End the spare."""
        if self._sockets is not None:
            self._loop.off(self._sockets[0].fileno())
            for sock in self._sockets:
                sock.close()
            self._sockets = None


def _readable(sock: socket.socket) -> bool:
    """Whether a socket can be read. It avoids select(2), which accepts no descriptor above 1023."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
