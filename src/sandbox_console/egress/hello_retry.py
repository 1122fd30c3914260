"""Watches a TLS handshake with a retry, in which both ClientHellos must name the same host.

A server that wants another key share answers with a HelloRetryRequest, and the client sends a second ClientHello (RFC
8446, 4.1.4). Until the server's first message has arrived, no handshake record of the client is passed on: the server
would read one that was sent ahead as the second ClientHello.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from sandbox_console.egress import client_hello

_RETRY = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
"""The random value by which a ServerHello is a HelloRetryRequest (RFC 8446, 4.1.3)."""
_CHANGE, _ALERT, _HANDSHAKE = 20, 21, 22
_SERVER_HELLO = 2
_SECRETLY = 23  # application data; in TLS 1.3 every encrypted record, such as early data
_HEAD, _RECORD_MOST = 5, (1 << 14) + 2048
_RANDOM_END = 4 + 2 + 32
_READ = 16 * 1024


class _Records:
    """The bytes of one direction, split into whole records."""

    def __init__(self) -> None:
        self.rest = b""

    def take(self) -> bytes:
        """The next whole record with its header; empty until all of it has arrived. Raises NotTLS."""
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
    """A server's first message. ``asks_again`` says whether it requests a second hello, None until that is certain."""

    def __init__(self) -> None:
        self._records, self._message = _Records(), b""
        self.asks_again: bool | None = None

    def feed(self, data: bytes) -> None:
        """Take more bytes of the server. Bytes that are not TLS request no second hello."""
        self._records.rest += data
        try:
            while self.asks_again is None and (record := self._records.take()):
                self._look(record)
        except client_hello.NotTLS:
            self.asks_again = False

    def _look(self, record: bytes) -> None:
        if record[0] in (_ALERT, _CHANGE):
            return  # a warning may come before the hello
        self._message += record[_HEAD:]
        if record[0] != _HANDSHAKE or self._message[:1] not in (b"", bytes([_SERVER_HELLO])):
            self.asks_again = False
        elif len(self._message) >= _RANDOM_END:
            self.asks_again = self._message[6:_RANDOM_END] == _RETRY


class Client:
    """What a client sends after its first hello, and how much of it may be passed on."""

    def __init__(self, answer: Answer) -> None:
        self._answer, self._records = answer, _Records()
        self._hello = b""
        self.name: str | None = None  # the name in the second hello, once it is complete

    @property
    def done(self) -> bool:
        """Whether no more has to be read."""
        return self._answer.asks_again is False or self.name is not None

    @property
    def waits(self) -> bool:
        """Whether something is held back until the server has answered."""
        return bool(self._records.rest) and self._answer.asks_again is None

    def feed(self, data: bytes) -> None:
        """Take more bytes of the client."""
        self._records.rest += data

    def onward(self) -> bytes:
        """What may be passed on to the server now. Raises NotTLS."""
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
        """Everything that is held back."""
        held, self._hello, self._records.rest = self._hello + self._records.rest, b"", b""
        return held

    def _passed(self, record: bytes) -> bytes:
        """A record that may be passed on by itself; empty if it is of the second hello, whose name is not known yet."""
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

    ``ahead`` is what was read from the client after its first hello. Returns how many bytes of the client and of the
    server were passed on. Raises NotTLS, and what ``check`` raises.
    """
    answer = Answer()
    hello = Client(answer)
    hello.feed(ahead)
    open_, up, down = [client, server], await _send(server, _checked(hello, check)), 0
    while not hello.done and open_:
        for sock in await _readable(open_):
            data = _some(sock)
            if data == b"":
                open_.remove(sock)
            elif data and sock is server:
                answer.feed(data)
                down += await _send(client, data)
            elif data:
                hello.feed(data)
        up += await _send(server, _checked(hello, check))
        if len(open_) == 1 and not (hello.done or (server in open_ and hello.waits)):
            _end(server if server in open_ else client)
    return up, down


def _checked(hello: Client, check: Callable[[str], None]) -> bytes:
    """What may be passed on to the server now: everything, once the name in the second hello has passed the check."""
    onward = hello.onward()
    if hello.name is not None:
        check(hello.name)
        onward += hello.rest()
    return onward


async def _send(sock: socket.socket, data: bytes) -> int:
    if data:  # there is none once the other side has ended, and sending nothing would fail
        await asyncio.get_running_loop().sock_sendall(sock, data)
    return len(data)


async def _readable(socks: list[socket.socket]) -> list[socket.socket]:
    """The sockets that have something to read. Nothing is read here, so a cancellation loses nothing."""
    loop = asyncio.get_running_loop()
    connections: list[socket.socket] = []
    woken: asyncio.Future[None] = loop.create_future()

    def note(sock: socket.socket) -> None:
        connections.append(sock)
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
    return connections


def _some(sock: socket.socket) -> bytes | None:
    """What can be read; empty at the end, None if there is nothing to read after all. Raises OSError."""
    try:
        return sock.recv(_READ)
    except BlockingIOError:
        return None


def _end(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the connection is gone, which the relay will find out
