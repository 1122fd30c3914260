"""Ports of the sandbox that an ssh client reaches through its connection: ``-L``, ``-D`` and ``-W``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

import asyncssh
from asyncssh.stream import SSHTCPStreamSession

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Forward
from sandbox_console.model.text import clean
from sandbox_console.servers.ssh.commands import CHUNK, LOST
from sandbox_console.servers.ssh.guest import Guest
from sandbox_console.service.sessions.forward import HeldForward, forward

_ITSELF = ("localhost", "127.0.0.1", "::1")
"""Names that mean the sandbox. A connection leads nowhere else: it would pass the egress rules by."""

_LONGEST_REASON = 300


class Ports:
    """One forward for each port that was asked for, from the first connection to the end of the client's."""

    def __init__(self, guest: Guest, say: Callable[[str], None]) -> None:
        self._guest, self._say = guest, say
        self._forwards: dict[int, HeldForward] = {}
        self._opening = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def session(self, host: str, port: int) -> asyncssh.SSHTCPSession[bytes]:
        """The session of one connection to a port of the sandbox. Raises ChannelOpenError, which the client shows."""
        name = self._guest.sandbox.name
        if host.lower() not in _ITSELF:
            raise refused(f"{host} is not reached through {name}: only its own ports are, as localhost:PORT")
        try:
            async with self._opening:
                held = await self._forward(port)
        except ConsoleError as error:
            raise refused(f"{error.message}{error.hint and f' ({error.hint})'}") from error
        near, far = socket.socketpair()
        if not held.forwarding.bring(far):
            near.close()
            far.close()
            raise refused(f"{name} has just ended")

        async def carry(reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
            await self._kept(asyncio.ensure_future(_carried(near, reader, writer)))

        return SSHTCPStreamSession[bytes](carry)

    async def _forward(self, port: int) -> HeldForward:
        """The forward of a port, opened through the gate if there is none that still runs. Raises ConsoleError."""
        held = self._forwards.get(port)
        if held is None or held.operation.done:
            action = Forward(self._guest.ref, port, listens=False)
            held = self._forwards[port] = await forward(self._guest.console, action, consent=self._guest.consent)
            self._kept(asyncio.ensure_future(self._tell(held)))
        return held

    async def _tell(self, held: HeldForward) -> None:
        """Report problems with connections, as that nothing answers. The first line of all says that it is open."""
        lines = held.operation.events()
        await anext(lines, None)
        async for line in lines:
            self._say(line)

    def _kept(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def end(self) -> None:
        """End them all, and wait until their outcomes are on record."""
        async with self._opening:
            held = [*self._forwards.values()]
        await asyncio.gather(*(one.release() for one in held), return_exceptions=True)
        await asyncio.gather(*self._tasks, return_exceptions=True)


def refused(reason: str) -> asyncssh.ChannelOpenError:
    """The refusal of a channel, with the reason that the client prints."""
    return asyncssh.ChannelOpenError(
        asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED, clean(f"sandbox-console: {reason}", cap=_LONGEST_REASON)
    )


async def _carried(near: socket.socket, reader: asyncssh.SSHReader[bytes], writer: asyncssh.SSHWriter[bytes]) -> None:
    """Pass bytes between the client's channel and its connection in the sandbox until one of them is closed."""
    near.setblocking(False)
    up, down = asyncio.create_task(_up(near, reader)), asyncio.create_task(_down(near, writer))
    gone = asyncio.create_task(writer.wait_closed())
    try:
        await asyncio.wait({down, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (up, down, gone):
            task.cancel()
        await asyncio.gather(up, down, gone, return_exceptions=True)
        near.close()
        with suppress(*LOST):
            writer.close()


async def _up(near: socket.socket, reader: asyncssh.SSHReader[bytes]) -> None:
    loop = asyncio.get_running_loop()
    with suppress(*LOST):
        while data := await reader.read(CHUNK):
            await loop.sock_sendall(near, data)
        near.shutdown(socket.SHUT_WR)


async def _down(near: socket.socket, writer: asyncssh.SSHWriter[bytes]) -> None:
    loop = asyncio.get_running_loop()
    with suppress(*LOST):
        while data := await loop.sock_recv(near, CHUNK):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
