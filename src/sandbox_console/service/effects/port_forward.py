"""Forwards a port of a running sandbox to this machine, until somebody closes it.

Each connection runs one command in the sandbox, whose stdin and stdout are the stream: the sandbox needs no network
and is not recreated. Bytes pass unchanged, and none of them is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, cast

from msgspec import structs

from sandbox_console.backends.abilities import Connects
from sandbox_console.backends.base import Backend, Process
from sandbox_console.errors import Conflict, ConsoleError, NotFound, UsageError
from sandbox_console.model.action import Exec, Forward, Permit
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.ports import PublishedPort
from sandbox_console.model.sandbox import Status
from sandbox_console.model.text import clean
from sandbox_console.service.effects.call import Call
from sandbox_console.service.effects.forward_connection import Connection, Tally, reset
from sandbox_console.service.effects.forward_programs import way_in
from sandbox_console.service.gate.operation import ActionResult

MOST = 64
"""The most connections of one forward at a time. Each is a process in the sandbox; others wait to be accepted."""
_BACKLOG = 128
_LOOK_S = 1.0
"""How often the sandbox is checked, so that a forward does not outlive it."""
_FULL_S = 0.2
"""How long to wait after a failed accept, for example for want of descriptors, before the next one."""


async def hold(action: Forward, permit: Permit, call: Call) -> ActionResult:
    """Listen until it is closed or until the sandbox ends, which is reported as ``end`` in the details.

    Raises Conflict (the port is taken, or the sandbox is not running), UsageError (listening there is not possible),
    Unsupported (the sandbox has no program that can connect).
    """
    name = clean(call.target.name) if call.target else str(action.ref)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(_bound(action.published))) if action.listens else None
        connects = isinstance(call.backend, Connects)
        command = None if connects else await way_in(call.backend, permit, action, name)
        forwarding = Forwarding(_listening(listener, action), action, permit.audit_id)
        if call.io.on_held is not None:
            call.io.on_held(forwarding)
        call.progress(f"{forwarding.host_address} -> {name}:{action.port}")
        reason = await _Answering(forwarding, listener, command, permit, call, name).run()
    return ActionResult(permit.audit_id, action.ref, details=forwarding.details() | ({"end": reason} if reason else {}))


def _listening(listener: socket.socket | None, action: Forward) -> str:
    """Listen from now on. Returns where; the words for it if nothing does."""
    if listener is None:
        return "its holder"
    listener.listen(_BACKLOG)
    return structs.replace(action.published, host_port=listener.getsockname()[1]).host_address


class Forwarding:
    """A forward that takes connections."""

    def __init__(self, host_address: str, action: Forward, audit_id: int) -> None:
        self.host_address, self.action, self.audit_id = host_address, action, audit_id
        self.connections = 0
        self.total = Tally()
        self.brought: asyncio.Queue[socket.socket] = asyncio.Queue()
        self._left = asyncio.Event()
        self._over, self._done = asyncio.Event(), asyncio.Event()

    def bring(self, client: socket.socket) -> bool:
        """Let it carry a connected stream socket, which it closes. Returns False, and does not, if it has ended."""
        if self._over.is_set():
            return False
        self.brought.put_nowait(client)
        return True

    async def release(self) -> None:
        """End it; returns when it has stopped listening and left nothing in the sandbox. Safe to call twice."""
        self._left.set()
        await self._done.wait()

    def details(self) -> dict[str, object]:
        """The details for the audit log."""
        place = {"place": self.host_address} if self.action.listens else {}
        return {
            **place,
            "connections": self.connections,
            "bytes_in": self.total.bytes_in,
            "bytes_out": self.total.bytes_out,
        }


class _Answering:
    """The tasks of one forward."""

    def __init__(
        self,
        forwarding: Forwarding,
        listener: socket.socket | None,
        command: Exec | None,
        permit: Permit,
        call: Call,
        name: str,
    ) -> None:
        self._forward, self._listener, self._command, self._permit = forwarding, listener, command, permit
        self._call, self._name = call, name
        self._backend: Backend = call.backend
        self._free = asyncio.Semaphore(MOST)
        self._open: set[asyncio.Task[None]] = set()
        self._doubt = asyncio.Event()
        self._last_message = ""

    async def run(self) -> str:
        """Listen until closed (returns nothing) or until the sandbox has ended (returns why)."""
        accepting = asyncio.ensure_future(self._accept())
        watching = asyncio.ensure_future(self._watch())
        leaving = asyncio.ensure_future(self._forward._left.wait())  # noqa: SLF001 - two halves of one thing
        own: set[asyncio.Future[Any]] = {accepting, watching, leaving}
        try:
            done, _ = await asyncio.wait(own, return_when=asyncio.FIRST_COMPLETED)
            if accepting in done:
                accepting.result()
            return watching.result() if watching in done else ""
        finally:
            await run_to_completion(self._end(own))

    async def _end(self, own: set[asyncio.Future[Any]]) -> None:
        await _cancelled(own)
        if self._listener is not None:
            self._listener.close()
        self._forward._over.set()  # noqa: SLF001
        while not self._forward.brought.empty():
            self._forward.brought.get_nowait().close()
        await _cancelled(self._open)
        self._forward._done.set()  # noqa: SLF001

    async def _accept(self) -> None:
        while True:
            await self._free.acquire()
            try:
                client = await self._next()
            except OSError as error:
                self._free.release()
                self._report(f"{self._forward.host_address}: {error.strerror}")
                await asyncio.sleep(_FULL_S)
                continue
            self._forward.connections += 1
            task = asyncio.ensure_future(self._serve(client))
            self._open.add(task)
            task.add_done_callback(self._served)

    async def _next(self) -> socket.socket:
        if self._listener is None:
            return await self._forward.brought.get()
        client, _ = await asyncio.get_running_loop().sock_accept(self._listener)
        return client

    def _served(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._free.release()
        if not task.cancelled() and task.exception() is not None:
            self._report(f"a connection ended: {task.exception()}")

    async def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                client.setblocking(False)
                with contextlib.suppress(OSError):  # one that was brought may be no TCP socket
                    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                process = await self._reached()
                connection = Connection(client, process, self._forward.total)
                await connection.run()
            except BaseException as error:
                reset(client)
                if isinstance(error, Conflict | NotFound):
                    self._doubt.set()
                raise
        port = self._forward.action.port
        self._report(f"{self._name}: nothing answered at port {port}" if connection.refused else "")

    async def _reached(self) -> Process:
        if self._command is not None:
            return await self._backend.exec(self._permit, self._command, ())
        action = self._forward.action
        return await cast(Connects, self._backend).connect(self._permit, action.ref, action.port)

    async def _watch(self) -> str:
        """Why the sandbox is gone. If that is not known at the moment, the backend is queried again."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._doubt.wait()
            try:
                sandbox = await self._backend.inspect(self._forward.action.ref)
            except NotFound:
                return f"{self._name} was removed"
            except ConsoleError:
                await asyncio.sleep(_LOOK_S)
                continue
            if not sandbox.status.live and sandbox.status is not Status.UNKNOWN:
                return f"{self._name} is no longer running: it is {sandbox.status}"
            self._doubt.clear()

    def _report(self, text: str) -> None:
        """Report a problem, once for all connections that have it."""
        if text and text != self._last_message:
            self._call.progress(text)
        self._last_message = text


async def _cancelled(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel them and wait until they have ended."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


def _bound(port: PublishedPort) -> socket.socket:
    """A socket that is bound to the address but does not listen yet. Raises Conflict, UsageError."""
    six = ipaddress.ip_address(port.address).version == 6
    sock = socket.socket(socket.AF_INET6 if six else socket.AF_INET)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if six:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((port.address, port.host_port))
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _no_place(port, error) from error
    return sock


def _no_place(port: PublishedPort, error: OSError) -> ConsoleError:
    if error.errno == errno.EADDRINUSE:
        hint = f"choose another one, or leave it out for a free one: {port.port}"
        return Conflict(f"port {port.host_port} of this host is taken at {port.address}", hint=hint)
    if error.errno in (errno.EACCES, errno.EPERM):
        hint = "choose one from 1024 on, or leave it out for a free one"
        return UsageError(f"{port.host_address}: you may not listen at port {port.host_port} of this host", hint=hint)
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return UsageError(f"{port.address} is not an address of this host", hint="leave it out for 127.0.0.1")
    return Conflict(f"{port.host_address} cannot be listened at: {error.strerror}")
