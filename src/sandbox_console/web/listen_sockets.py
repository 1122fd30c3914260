"""The sockets that a server listens on, and the host names that lead to no other server."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from sandbox_console.errors import Conflict, ConsoleError, UsageError
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.hostfs.walk import find
from sandbox_console.web.options import LOOPBACKS, ServeOptions

_BACKLOG = 64
_TRIES = 20
_HINTS = {errno.EADDRNOTAVAIL: "name an address of this machine: ip addr", errno.EACCES: "choose a port from 1024 on"}


class Listening(Struct, frozen=True):
    """The sockets, which are held until the server ends. ``lacks`` is the loopback address that another program has."""

    sockets: list[socket.socket]
    authorities: tuple[str, ...]
    lacks: str = ""

    @property
    def port(self) -> int:
        """The port, which is the same on each address; 0 for a socket file."""
        first = self.sockets[0]
        return 0 if first.family == socket.AF_UNIX else int(first.getsockname()[1])


@contextmanager
def listening(options: ServeOptions, port: int, guest_folders: GuestFolders = NOBODYS) -> Iterator[Listening]:
    """Listen at the address of the options, for loopback in both families. Raises UsageError, Conflict.

    Browsers use either family for ``localhost``, so a program at the other address would get the login. Such names are
    answered only if both addresses are held.
    """
    with ExitStack() as stack:
        if options.socket:
            yield Listening([stack.enter_context(_file(options.socket, guest_folders))], ())
            return
        sockets, lacks = _held(options, port)
        for sock in sockets:
            stack.enter_context(sock)
        number = sockets[0].getsockname()[1]
        if lacks and options.is_local_name:
            message = f"{options.host} is also {lacks}, where another program has port {number}"
            raise Conflict(message, hint="leave --port out for a free one")
        yield Listening(sockets, options.authorities(number, both=not lacks), lacks)


def _held(options: ServeOptions, port: int) -> tuple[list[socket.socket], str]:
    """The listening sockets, and the address that another program has, if any."""
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


@contextmanager
def _file(path: Path, guest_folders: GuestFolders) -> Iterator[socket.socket]:
    """A socket file for our user and group, for a proxy. Raises Conflict, UsageError."""
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            found = stack.enter_context(find(path, guest_folders, follow=False))
            place = Path(f"/proc/self/fd/{found.folder.fd}", found.name)  # the folder that was looked at
            _remove_abandoned(place)
            old = os.umask(0o117)
            try:
                sock.bind(str(place))
            finally:
                os.umask(old)
            sock.listen(_BACKLOG)
        except OSError as error:
            hint = "it must be a free name of up to 100 bytes in a folder of yours"
            raise Conflict(f"cannot listen on {path}: {error.strerror or error}", hint=hint) from error
        try:
            yield sock
        finally:
            place.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Remove a socket file on which nobody listens. Raises OSError for anything else."""
    if not path.exists():
        return
    if not path.is_socket():
        raise FileExistsError(errno.EEXIST, "it is there, and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise FileExistsError(errno.EADDRINUSE, "another program listens there")


def _listening_at(address: str, port: int, shown: str) -> socket.socket:
    try:
        family, kind, proto, _, end = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
    except OSError as error:
        raise UsageError(f"{shown} is not an address of this machine: {error}", hint="see: ip addr") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(end)
        sock.listen(_BACKLOG)  # at once, as another program could share an address that is only bound
    except OSError as error:
        sock.close()
        message = f"cannot listen on {shown} port {port}: {error.strerror}"
        hint = _HINTS.get(error.errno or 0, "leave --port out for a free one")
        raise Conflict(message, hint=hint) from error
    return sock
