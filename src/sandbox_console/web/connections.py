"""Limits the connections of each client, so that one client's idle connections do not keep others out."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable

from aiohttp import web

from sandbox_console.web.http_handler import Handler
from sandbox_console.web.peer_user import End, user_at

HEADER_S = 5.0
"""Seconds within which a connection must send a whole request header, at first and after each response."""
MOST_OF_A_LOGIN = 16
"""The most connections of one login, besides those of strangers. A browser opens six, and one for each websocket."""
_PAUSE_S = 0.1


class Connection:
    """One connection: its owner, and the login that it has shown."""

    def __init__(self, owner: str, hang_up: Callable[[], None]) -> None:
        self.owner = owner
        self.hang_up = hang_up
        self.login = ""


class Connections:
    """The connections of one listener. Those without a login share ``most`` places by their owners.

    If all are taken, the owner with the most of them loses its oldest one. ``keeps_own`` refuses a new connection
    instead if it would push out one of the same owner, for clients that have no login to show.
    """

    def __init__(self, limit: int, *, keeps_own: bool = False) -> None:
        self._most = limit
        self._keeps_own = keeps_own
        self._strangers: list[Connection] = []
        self._known: list[Connection] = []

    def take(self, owner: str, hang_up: Callable[[], None]) -> Connection | None:
        """Take a place for a new connection; None if the connection has to be closed."""
        if len(self._strangers) >= self._most:
            crowd, _ = Counter(seat.owner for seat in self._strangers).most_common(1)[0]
            if crowd == owner and self._keeps_own:
                return None
            self._free(next(seat for seat in self._strangers if seat.owner == crowd))
        seat = Connection(owner, hang_up)
        self._strangers.append(seat)
        return seat

    def prove(self, seat: Connection, login: str) -> None:
        """Stop counting a connection as a stranger's, as it has shown a login. A login's oldest ones make room."""
        if seat not in self._strangers:
            return
        self._strangers.remove(seat)
        seat.login = login
        self._known.append(seat)
        own = [one for one in self._known if one.login == login]
        if len(own) > MOST_OF_A_LOGIN:
            self._free(own[0])

    def leave(self, seat: Connection) -> None:
        """Note that the connection has ended."""
        for seats in (self._strangers, self._known):
            if seat in seats:
                seats.remove(seat)

    def _free(self, seat: Connection) -> None:
        self.leave(seat)
        seat.hang_up()


class Acceptor:
    """Accepts the connections of one listening socket until it is closed. The handshake of TLS needs a place too."""

    def __init__(
        self, server: web.Server, listening: socket.socket, seats: Connections, tls: ssl.SSLContext | None
    ) -> None:
        self._server = server
        self._listening = listening
        self._seats = seats
        self._tls = tls
        self._opening: set[asyncio.Task[None]] = set()
        listening.setblocking(False)
        self._task = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Accept no more, and give up handshakes."""
        tasks = [self._task, *self._opening]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                link, _ = await loop.sock_accept(self._listening)
            except OSError:  # out of descriptors: open connections end by themselves
                await asyncio.sleep(_PAUSE_S)
                continue
            self._begin(link)

    def _begin(self, link: socket.socket) -> None:
        opening: asyncio.Task[None] | None = None
        handler = Handler(self._server)

        def hang_up() -> None:
            if handler.transport is not None:
                handler.transport.abort()
            elif opening is not None:
                opening.cancel()

        seat = self._seats.take(owner_of(link), hang_up)
        if seat is None:
            link.close()
            return
        handler.take(lambda login: self._seats.prove(seat, login), lambda: self._seats.leave(seat))
        opening = asyncio.create_task(self._open(link, handler))
        self._opening.add(opening)
        opening.add_done_callback(lambda task: self._opened(task, link, seat))

    async def _open(self, link: socket.socket, handler: Handler) -> None:
        limit = HEADER_S if self._tls else None
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: handler, link, ssl=self._tls, ssl_handshake_timeout=limit)

    def _opened(self, task: asyncio.Task[None], link: socket.socket, seat: Connection) -> None:
        """Close a failed connection, as a task that was cancelled before it began has not closed it."""
        self._opening.discard(task)
        if task.cancelled() or task.exception() is not None:
            link.close()
            self._seats.leave(seat)


def owner_of(link: socket.socket) -> str:
    """The owner of a connection: a user of this machine if known, else an address, or the /64 of an IPv6 address."""
    if link.family == socket.AF_UNIX:
        _, uid, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        return f"uid {uid}"
    try:
        peer, own = link.getpeername(), link.getsockname()
    except OSError:  # the connection is gone
        return ""
    there, here = End.of(peer), End.of(own)
    address = there.address
    if address.is_loopback or address == here.address:
        uid = user_at(there, here)
        return address.compressed if uid is None else f"uid {uid}"
    if address.version == 6:
        return ipaddress.ip_network((address, 64), strict=False).with_prefixlen
    return address.compressed
