"""A TLS handshake with a retry: both ClientHellos must name the same host.

A server that wants another key share answers with a HelloRetryRequest, and the client says hello again (RFC 8446,
4.1.4). Until the server's first message has come no handshake record of the client's goes on: one that was sent ahead
of it would be read as that second hello.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from sandbox_console.egress import client_hello

_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random of a ServerHello that is a HelloRetryRequest: RFC 8446, 4.1.3."""
_CHANGE, _ALERT, _HANDSHAKE = 20, 21, 22
_SERVER_HELLO = 2
_SECRETLY = 23  # application data, in TLS 1.3 every encrypted record: early data before the second hello
_HEAD, _RECORD_MOST = 5, (1 << 14) + 2048
_RANDOM_END = 4 + 2 + 32
_READ = 16 * 1024


class _Records:
    """Bytes of one direction, taken apart into whole records."""

    def __init__(self) -> None:
        self.rest = b""

    def take(self) -> bytes:
        """The next whole record with its head; empty while it has not all come. Raises NotTLS."""
        if len(self.rest) < _HEAD:
            return b""
        length = int.from_bytes(self.rest[3:_HEAD], "big")
        if self.rest[1] != 3 or length > _RECORD_MOST:
            raise client_hello.NotTLS("it is no TLS record")
        if len(self.rest) < _HEAD + length:
            return b""
        record, self.rest = self.rest[: _HEAD + length], self.rest[_HEAD + length :]
        return record


class Answer:
    """What a server's first message is; ``asks_again`` is None until that is certain."""

    def __init__(self) -> None:
        self._records, self._message = _Records(), b""
        self.asks_again: bool | None = None

    def feed(self, data: bytes) -> None:
        """Take more of what the server sent; what is not TLS requests no second hello."""
        self._records.rest += data
        try:
            while self.asks_again is None and (record := self._records.take()):
                self._look(record)
        except client_hello.NotTLS:
            self.asks_again = False

    def _look(self, record: bytes) -> None:
        if record[0] in (_ALERT, _CHANGE):
            return  # a warning may stand before the hello
        self._message += record[_HEAD:]
        if record[0] != _HANDSHAKE or self._message[:1] not in (b"", bytes([_SERVER_HELLO])):
            self.asks_again = False
        elif len(self._message) >= _RANDOM_END:
            self.asks_again = self._message[6:_RANDOM_END] == _RETRY


class Client:
    """What a client sends after its first hello, and how much of it may go on."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._records = answer, _Records()
        self._hello = b""
        self.name: str | None = None  # that of the second hello, once it is whole

    @property
    def done(self) -> bool:
        """Whether nothing more has to be read."""
        return self._answer.asks_again is False or self.name is not None

    @property
    def waits(self) -> bool:
        """Whether something is held until the server has answered."""
        return bool(self._records.rest) and self._answer.asks_again is None

    def feed(self, data: bytes) -> None:
        """More of what the client sent."""
        self._records.rest += data

    def onward(self) -> bytes:
        """What may go on to the server now. Raises NotTLS."""
        out = b""
        while not self.done:
            held = self._records.rest
            if held[:1] == bytes([_HANDSHAKE]) and self._answer.asks_again is None:
                if len(held) > client_hello.MOST + _RECORD_MOST:
                    raise client_hello.NotTLS("the client goes on with its handshake before the server has answered")
                return out
            record = self._records.take()
            if not record:
                return out
            out += self._passed(record)
        if self.name is None:
            out += self.rest()
        return out

    def rest(self) -> bytes:
        """All that is held."""
        held, self._hello, self._records.rest = self._hello + self._records.rest, b"", b""
        return held

    def _passed(self, record: bytes) -> bytes:
        """A record that goes on by itself, or empty: one of the second hello waits until the name is known."""
        if record[0] == _HANDSHAKE:
            self._hello += record
            self.name = client_hello.server_name(self._hello)
            return b""
        if self._hello or record[0] not in (_CHANGE, _ALERT, _SECRETLY):
            raise client_hello.NotTLS("something stands within the second ClientHello")
        return record


async def watch(
    client: socket.socket, server: socket.socket, check: Callable[[str], None], ahead: bytes = b""
) -> tuple[int, int]:
    """Pass bytes both ways until no second hello can come, or ``check`` has let its name pass.

    ``ahead`` is what was read of the client behind its first hello. Gives the bytes of the client's and the server's
    that were passed on. Raises NotTLS, and what ``check`` raises.
    """
    answer = Answer()
    said = Client(answer)
    said.feed(ahead)
    open_, up, down = [client, server], await _send(server, _checked(said, check)), 0
    while not said.done and open_:
        for one in await _readable(open_):
            data = _some(one)
            if data == b"":
                open_.remove(one)
            elif data and one is server:
                answer.feed(data)
                down += await _send(client, data)
            elif data:
                said.feed(data)
        up += await _send(server, _checked(said, check))
        if len(open_) == 1 and not (said.done or (server in open_ and said.waits)):
            _end(server if server in open_ else client)
    return up, down


def _checked(said: Client, check: Callable[[str], None]) -> bytes:
    """What may go on to the server now; all of it once the second hello's name has passed."""
    onward = said.onward()
    if said.name is not None:
        check(said.name)
        onward += said.rest()
    return onward


async def _send(sock: socket.socket, data: bytes) -> int:
    if data:  # where the other side has ended there is none, and sending nothing would fail
        await asyncio.get_running_loop().sock_sendall(sock, data)
    return len(data)


async def _readable(socks: list[socket.socket]) -> list[socket.socket]:
    """Those that have something to read. Nothing is read yet, so nothing is lost when this is cancelled."""
    loop = asyncio.get_running_loop()
    found: list[socket.socket] = []
    woken: asyncio.Future[None] = loop.create_future()

    def note(sock: socket.socket) -> None:
        found.append(sock)
        loop.remove_reader(sock)
        if not woken.done():
            woken.set_result(None)

    for sock in socks:
        loop.add_reader(sock, note, sock)
    try:
        await woken
    finally:
        for sock in socks:
            loop.remove_reader(sock)
    return found


def _some(sock: socket.socket) -> bytes | None:
    """What is there, empty at the end, None where there was nothing after all. Raises OSError."""
    try:
        return sock.recv(_READ)
    except BlockingIOError:
        return None


def _end(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        return  # it is gone; the relay finds out
