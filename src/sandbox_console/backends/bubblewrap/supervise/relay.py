"""The process behind published ports: it relays connections from this host to the guest's loopback.

It is forked from the supervisor and stays in the sandbox's network, without any privilege, so its own sockets reach
nothing but the guest. The sockets it listens on were bound before. It does not inspect data.
"""

import errno
import math
import select
import socket
import struct
import time
from collections.abc import Callable

CONNECTIONS_MOST = 256
_CHUNK = 32768  # 16 MiB in all if every connection is stuck; 64 KiB would be a tenth faster
_LAST_S = 2.0  # for the last data of a guest that has ended
_REST_S = 0.1  # after a resource has run out
_LOOPBACKS = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 20), (socket.TCP_KEEPCNT, 3))
_PASSING = (errno.EAGAIN, errno.EINTR, errno.ECONNABORTED)
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class End:
    """One of the two sockets of a connection. ``left`` is still to be sent to it; one that ``ended`` sends no more."""

    __slots__ = ("client", "connects", "ended", "fd", "left", "looks", "other", "shut", "sock")

    def __init__(self, sock: socket.socket, *, client: bool) -> None:
        self.sock, self.fd, self.client = sock, sock.fileno(), client
        self.other = self
        self.left = b""
        self.ended = self.shut = False
        self.connects = 0  # the guest's port that it is about to connect to
        self.looks = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def wants(self) -> int:
        """The events to wait for: input, while the other end accepts it, and room for output that is left."""
        if self.connects:
            return _OUT
        if self.other.connects:
            return 0
        return (0 if self.ended or self.other.left else _IN) | (_OUT if self.left else 0)


class Relay:
    """``places`` are listening sockets with the guest's port of each; ``line`` ends with the sandbox."""

    def __init__(self, places: dict[socket.socket, int], line: socket.socket, used: Callable[[float], object]) -> None:
        self._places = {sock.fileno(): (sock, port) for sock, port in places.items()}
        self._line, self._used = line, used
        self._poll = select.epoll()
        self._poll.register(line, _IN)
        self._ends: dict[int, End] = {}
        self._gone: list[socket.socket] = []  # closed after the turn, so that no number is reused before
        self._listens = False
        self._rest = 0.0
        self._until = math.inf

    def run(self) -> None:
        """Relay until the line has ended and the rest is passed on, or the time for that is over."""
        while time.monotonic() < self._until and (self._ends or self._until == math.inf):
            self._turn()
        for end in [one for one in self._ends.values() if one.client]:
            self._drop(end)  # half an answer must not look complete

    def _turn(self) -> None:
        self._listen()
        for fd, event in self._poll.poll(self._wait()):
            if end := self._ends.get(fd):
                self._serve(end, event)
            elif fd in self._places:
                self._accept(*self._places[fd])
            elif fd == self._line.fileno():
                self._finish()
        for sock in self._gone:
            sock.close()
        self._gone.clear()

    def _wait(self) -> float:
        now = time.monotonic()
        until = min(self._until, self._rest if self._rest > now else math.inf)
        return -1 if until == math.inf else max(0.0, until - now)

    def _listen(self) -> None:
        """Accept connections while there is room for one more; the others wait in the kernel's queue."""
        if len(self._ends) >= 2 * CONNECTIONS_MOST:
            self._release()
        room = len(self._ends) < 2 * CONNECTIONS_MOST
        listens = room and self._rest <= time.monotonic() and self._until == math.inf
        if listens != self._listens:
            for fd in self._places:
                self._poll.register(fd, _IN) if listens else self._poll.unregister(fd)
            self._listens = listens

    def _finish(self) -> None:
        """Handle the end of the sandbox: accept no more connections, and let answers on their way arrive."""
        self._poll.unregister(self._line)
        self._until = time.monotonic() + _LAST_S
        self._listen()
        for sock, _port in self._places.values():
            sock.close()
        self._release()

    def _release(self) -> None:
        """Close connections whose clients have all data of the ended guest but keep their half open."""
        for end in [one for one in self._ends.values() if one.client and one.shut]:
            self._forget(end.other)
            self._forget(end)

    # -- a connection

    def _accept(self, sock: socket.socket, port: int) -> None:
        try:
            client = End(sock.accept()[0], client=True)
        except OSError as error:
            if error.errno not in _PASSING:
                self._rest = time.monotonic() + _REST_S
            return
        for option, value in _KEEPALIVE:
            client.sock.setsockopt(socket.IPPROTO_TCP, option, value)
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._ends[client.fd] = client
        self._connect(client, port, _LOOPBACKS[0])

    def _connect(self, client: End, port: int, to: tuple[int, str]) -> None:
        family, address = to
        try:
            guest = End(socket.socket(family), client=False)
        except OSError:
            self._drop(client)
            return
        guest.connects, guest.other, client.other = port, client, guest
        self._ends[guest.fd] = guest
        code = guest.sock.connect_ex((address, port))
        if code in (0, errno.EINPROGRESS):
            self._settle(guest)
        else:
            self._refused(guest, code)

    def _refused(self, guest: End, code: int) -> None:
        client, port = guest.other, guest.connects
        if code == errno.ECONNREFUSED and guest.sock.family == socket.AF_INET:
            self._forget(guest)
            client.other = client
            self._connect(client, port, _LOOPBACKS[1])
        else:
            self._drop(guest)

    def _serve(self, end: End, event: int) -> None:
        try:
            if end.connects:
                if code := end.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    self._refused(end, code)
                    return
                end.connects = 0
            else:
                self._used(time.monotonic())
                self._carry(end, event)
            self._settle(end)
        except OSError:
            self._drop(end)

    def _carry(self, end: End, event: int) -> None:
        """Read or write. Errors and hang-ups are reported with either event, and the call shows which it is."""
        looks = end.looks
        if looks & _OUT and event & ~_IN:
            self._send(end)
        if looks & _IN and event & ~_OUT:
            try:
                data = end.sock.recv(_CHUNK)
            except BlockingIOError:
                return
            end.ended = not data
            if data:
                end.other.left = data
                self._send(end.other)

    @staticmethod
    def _send(end: End) -> None:
        try:
            end.left = end.left[end.sock.send(end.left) :]
        except BlockingIOError:
            pass

    def _settle(self, end: End) -> None:
        """Pass an end of stream on once everything before it is sent; close when both have ended. Raises OSError."""
        other = end.other
        for one in (end, other):
            if one.other.ended and not one.left and not one.shut:
                one.sock.shutdown(socket.SHUT_WR)
                one.shut = True
        client, guest = (end, other) if end.client else (other, end)
        if client.shut and (guest.shut or self._until < math.inf):
            self._forget(end)
            self._forget(other)
            return
        for one in (end, other):
            self._look(one, one.wants)

    def _look(self, end: End, wants: int) -> None:
        """Poll an end, unless it waits for nothing: its hang-up would be reported over and over."""
        if wants == end.looks:
            return
        if not end.looks:
            self._poll.register(end.fd, wants)
        elif wants:
            self._poll.modify(end.fd, wants)
        else:
            self._poll.unregister(end.fd)
        end.looks = wants

    def _forget(self, end: End) -> None:
        self._look(end, 0)
        del self._ends[end.fd]
        self._gone.append(end.sock)

    def _drop(self, end: End) -> None:
        """Reset the other end when one failed or was never reached, as would happen without a relay."""
        for one in {end, end.other}:
            one.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._forget(one)
