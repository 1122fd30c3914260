"""aiohttp's handler of one connection, but its errors reveal nothing about the server, and websockets need masks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from sandbox_console.web.request_checks import HEADERS

_MASK = 0x80
_LENGTH_BYTES = {126: 2, 127: 8}
_LONGEST_HEAD = 10
_BROKEN_FRAME = b"\xf0\x80"
"""Bits that no frame has: aiohttp closes with 1002 for it."""


class Handler(RequestHandler):
    """One connection of a listener."""

    def __init__(self, server: web.Server) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **server._kwargs)  # noqa: SLF001
        self._prove: Callable[[str], None] = lambda _login: None
        self._leave: Callable[[], None] = lambda: None

    def take(self, prove: Callable[[str], None], leave: Callable[[], None]) -> None:
        """Set ``prove``, to be called with a login, and ``leave``, to be called when the connection has ended."""
        self._prove, self._leave = prove, leave

    def prove(self, login: str) -> None:
        """A request on this connection has shown a login."""
        self._prove(login)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer without aiohttp's name and version, and without what its parser found."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            answer = super().handle_error(request, status, exc, message)
        else:
            answer = web.Response(status=status, text=f"{HTTPStatus(status).phrase}\n")
            answer.force_close()
        answer.headers.update(HEADERS)
        return answer

    def set_parser(self, parser: Any, data_received_cb: Callable[[], None] | None = None) -> None:
        super().set_parser(MaskedFrames(parser), data_received_cb)  # type: ignore[arg-type]


class MaskedFrames:
    """A websocket's parser behind a check that each frame is masked, as a browser's is (RFC 6455, 5.1).

    Without masks a page could choose the bytes on the wire, and write what a proxy takes for a request.
    """

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._head = b""
        self._left = 0

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Pass data on while its frames are masked. An incomplete frame header waits for the rest."""
        data, self._head = self._head + data, b""
        at = 0
        while at < len(data):
            if not self._left:
                head = data[at : at + _LONGEST_HEAD]
                if len(head) > 1 and not head[1] & _MASK:
                    return self._fed(data[:at] + _BROKEN_FRAME)
                self._left = _frame_size(head)
                if not self._left:
                    self._head = data[at:]
                    break
            passed = min(self._left, len(data) - at)
            self._left -= passed
            at += passed
        return self._fed(data[:at]) if at else (False, b"")

    def feed_eof(self) -> None:
        """Note that the connection has ended."""
        self._parser.feed_eof()

    def _fed(self, data: bytes) -> tuple[bool, bytes]:
        fed: tuple[bool, bytes] = self._parser.feed_data(data)
        return fed


def _frame_size(head: bytes) -> int:
    """The size of a masked frame with its header, in bytes; 0 while the header is incomplete."""
    length = head[1] & ~_MASK if len(head) > 1 else 0
    wide = _LENGTH_BYTES.get(length, 0)
    if len(head) < 2 + wide:
        return 0
    return 2 + wide + 4 + (int.from_bytes(head[2 : 2 + wide], "big") if wide else length)
