"""Accepts connections from listening sockets: a limited number at once, each in its own task."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from sandbox_console.egress.addresses import Address

SPARE = 256  # connections above the limit that still get a refusal; more wait in the kernel
_ACCEPTS = 64
_PAUSE_S = 0.05


class Listener:
    """Serves connections. ``admits`` says by socket and peer which are passed to ``serve``; the others are closed."""

    def __init__(
        self,
        serve: Callable[[socket.socket], Awaitable[None]],
        most: int,
        admits: Callable[[socket.socket, Address], bool],
    ) -> None:
        self._serve, self._most, self._admits = serve, most, admits
        self._clients: set[asyncio.Task[None]] = set()

    @property
    def full(self) -> bool:
        """Whether there are more connections than are served."""
        return len(self._clients) > self._most

    async def keep(self, listeners: Sequence[socket.socket]) -> None:
        """Serve until cancelled; then every connection is cut."""
        loop = asyncio.get_running_loop()
        for listener in listeners:
            listener.setblocking(False)
            loop.add_reader(listener, self._accept, listener)
        try:
            await loop.create_future()
        finally:
            for listener in listeners:
                loop.remove_reader(listener)
            for task in (tasks := [*self._clients]):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTS):
            try:
                if len(self._clients) >= self._most + SPARE:
                    raise OSError  # noqa: TRY301 - the same as no descriptor left
                sock, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # waiting connections are accepted when others have closed
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(_PAUSE_S, self._again, listener)
                return
            if not self._admits(sock, ipaddress.ip_address(peer[0])):
                sock.close()
                continue
            task = asyncio.ensure_future(self._serve(sock))
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)

    def _again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)
