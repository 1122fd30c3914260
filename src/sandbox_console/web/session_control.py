"""Lets ``sandbox-console sessions`` list and end a server's sessions, through a socket for this user alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from sandbox_console.background_process import ProcessFolder
from sandbox_console.web.app_sessions import AppSessions

_LINE_S = 5.0


@contextlib.asynccontextmanager
async def session_control(
    folder: Path, sessions: AppSessions, say: Callable[[str], None], clear: Callable[[], None]
) -> AsyncIterator[None]:
    """Answer while inside. A folder that cannot be used is reported, and the server runs without this.

    ``clear`` removes what servers that were killed have left. It is called if no other server runs.
    """
    async with contextlib.AsyncExitStack() as stack:
        try:
            if await _listen(stack, folder, sessions):
                await asyncio.to_thread(clear)
        except OSError as error:
            say(f"warning: `sandbox-console sessions` cannot see this server: {folder}: {error.strerror or error}")
        yield


async def _listen(stack: contextlib.AsyncExitStack, folder: Path, sessions: AppSessions) -> bool:
    """Listen until the end of the stack. Returns whether no other server runs."""
    place = ProcessFolder(str(folder), make=True)
    stack.callback(place.close)
    alone = _remove_abandoned(place)
    name = f"{os.getpid()}-{secrets.token_hex(4)}"
    lock = place.take(name)
    if lock is None:
        raise OSError(None, "the name is taken", str(folder))
    stack.callback(os.close, lock)
    stack.callback(place.leave, name)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(ConnectionError, TimeoutError, ValueError):
            line = await asyncio.wait_for(reader.readline(), _LINE_S)
            writer.writelines((await _answer(sessions, json.loads(line)), b"\n"))
            await writer.drain()

    server = await asyncio.start_unix_server(answer, sock=place.listen(name))
    stack.push_async_callback(server.wait_closed)
    stack.callback(server.close)
    return alone


async def _answer(sessions: AppSessions, question: object) -> bytes:
    match question:
        case {"ls": True}:
            return msgspec.json.encode(sessions.infos())
        case {"end": str() as id_, "actor": str() as actor}:
            return msgspec.json.encode(await sessions.end(id_, f"{actor} has ended it"))
    return b"null"


def _remove_abandoned(folder: ProcessFolder) -> bool:
    """Remove the files of servers that were killed. Returns whether there are no others."""
    alone = True
    for file in os.listdir(folder.fd):  # noqa: PTH208 - an open folder
        name = file.removesuffix(".lock")
        if name == file:
            continue
        if (lock := folder.take(name)) is None:
            alone = False
        else:
            folder.leave(name)
            os.close(lock)
    return alone
