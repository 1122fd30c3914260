"""The sockets that a server listens on, and the names that lead to no other."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from msgspec import Struct

from sandbox_console.errors import Conflict, ConsoleError, UsageError
from sandbox_console.web.options import LOOPBACKS, ServeOptions

_BACKLOG = 64
_TRIES = 20
_HINTS = {errno.EADDRNOTAVAIL: "name an address of this machine: ip addr", errno.EACCES: "choose a port from 1024 on"}


class Listening(Struct, frozen=True):
    """What is held until the server ends. ``lacks`` is the loopback address that another program holds."""

    sockets: list[socket.socket]
    authorities: tuple[str, ...]
    lacks: str = ""

    @property
    def port(self) -> int:
        """The port, the same on each address."""
        return int(self.sockets[0].getsockname()[1])


@contextmanager
def listening(options: ServeOptions, port: int) -> Iterator[Listening]:
    """Hold the address of the options at a port, of loopback both families. Raises UsageError, Conflict.

    Browsers go to either family for ``localhost``, so a program at the other one would be handed the login. These names
    are answered only where both are held.
    """
    with ExitStack() as stack:
        sockets, lacks = _held(options, port)
        for one in sockets:
            stack.enter_context(one)
        number = sockets[0].getsockname()[1]
        if lacks and options.is_local_name:
            message = f"{options.host} is also {lacks}, where another program has port {number}"
            raise Conflict(message, hint="leave --port out for a free one")
        yield Listening(sockets, options.authorities(number, both=not lacks), lacks)


def _held(options: ServeOptions, port: int) -> tuple[list[socket.socket], str]:
    """The listening sockets, and the address that could not be had because another program has it."""
    for _ in range(_TRIES):
        first = _listening_at(options.bind, port, options.host)
        other = LOOPBACKS.get(options.bind)
        if other is None:
            return [first], ""
        try:
            return [first, _listening_at(other, first.getsockname()[1], other)], ""
        except ConsoleError as error:
            cause = error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in (errno.EADDRINUSE, errno.EACCES):
            return [first], ""  # this machine has no such address, so nobody listens there
        if port:
            return [first], other
        first.close()
    raise Conflict(f"no port is free at {options.bind} and at {LOOPBACKS[options.bind]}", hint="name one: --port")


def _listening_at(address: str, port: int, shown: str) -> socket.socket:
    try:
        family, kind, proto, _, end = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, proto)
    except OSError as error:
        raise UsageError(f"{shown} is not an address of this machine: {error}", hint="see: ip addr") from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(end)
        made.listen(_BACKLOG)  # at once: another program could share an address that is only bound
    except OSError as error:
        made.close()
        message = f"cannot listen on {shown} port {port}: {error.strerror}"
        hint = _HINTS.get(error.errno or 0, "leave --port out for a free one")
        raise Conflict(message, hint=hint) from error
    return made
