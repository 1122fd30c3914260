"""Turns what a caller gives as a command's input into the chunks that the service takes."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import suppress
from typing import Protocol, runtime_checkable

from sandbox_console.hostfs.files import opened
from sandbox_console.hostfs.guest_writable import NOBODYS, GuestFolders
from sandbox_console.library.exec_output import AskGround

CHUNK = 256 * 1024
_AHEAD = 4
"""How many chunks are read before the command requests them."""


@runtime_checkable
class Readable(Protocol):
    """An open file, of bytes or text."""

    def read(self, size: int, /) -> bytes | str:
        """Read at most ``size`` bytes or characters; empty at the end."""
        ...


Data = bytes | str
"""The type of a chunk. Text is encoded as UTF-8."""
Input = Data | os.PathLike[str] | Readable | Iterable[Data] | AsyncIterable[Data] | None


class Source:
    """An input on its way to a command. ``problem`` is what the caller's own object raised."""

    def __init__(self, given: Input, ground: AskGround) -> None:
        self._given, self._ground = given, ground
        self.problem: Exception | None = None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The chunks as bytes, with text as UTF-8. An error of the input is stored in ``problem`` and raised."""
        try:
            guest_folders = await self._ground() if isinstance(self._given, os.PathLike) else NOBODYS
            async for data in _read(self._given, guest_folders):
                yield _bytes(data)
        except Exception as error:
            self.problem = error
            raise


async def _read(given: Input, guest_folders: GuestFolders) -> AsyncGenerator[Data, None]:
    if given is None:
        return
    if isinstance(given, (bytes, str)):
        yield given
    elif isinstance(given, (bytearray, memoryview)):
        yield bytes(given)
    elif isinstance(given, AsyncIterable):
        async for data in given:
            yield data
    else:
        async for data in _from_thread(given, guest_folders):
            yield data


def _bytes(data: object) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"stdin is bytes or text, not {type(data).__name__}")


async def _from_thread(
    given: os.PathLike[str] | Readable | Iterable[Data], guest_folders: GuestFolders
) -> AsyncGenerator[Data, None]:
    """Read an input that may block, such as a terminal or a slow iterator, in a daemon thread."""
    pump = _Pump(given, guest_folders)
    threading.Thread(target=pump.run, name="sandbox-console stdin", daemon=True).start()
    try:
        while (item := await pump.items.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            pump.room.release()
            yield item
    finally:
        pump.left = True
        pump.room.release()


class _Pump:
    """The thread's part, which reads at most ``_AHEAD`` chunks ahead of the command."""

    def __init__(self, given: os.PathLike[str] | Readable | Iterable[Data], guest_folders: GuestFolders) -> None:
        self.items: asyncio.Queue[Data | BaseException | None] = asyncio.Queue()
        self.room = threading.Semaphore(_AHEAD)
        self.left = False
        self._given, self._ground = given, guest_folders
        self._loop = asyncio.get_running_loop()

    def run(self) -> None:
        """Read to the end, or until the command has ended."""
        with suppress(RuntimeError):  # the loop is closed, so nobody is waiting
            try:
                self._pass_on()
            except Exception as error:  # noqa: BLE001 - the caller's own, raised where the caller waits
                self._put(error)

    def _pass_on(self) -> None:
        if isinstance(self._given, os.PathLike):
            with opened(os.fspath(self._given), self._ground) as file:
                self._each(lambda: file.read(CHUNK))
        elif isinstance(self._given, Readable):
            file_ = self._given
            self._each(lambda: file_.read(CHUNK))
        else:
            items = iter(self._given)
            self._each(lambda: next(items, None))

    def _each(self, read: Callable[[], Data | None]) -> None:
        iterates = not isinstance(self._given, (os.PathLike, Readable))
        while True:
            self.room.acquire()
            if self.left:
                return
            data = read()
            if data is None or (not data and not iterates):
                break
            self._put(data)
        self._put(None)

    def _put(self, item: Data | BaseException | None) -> None:
        self._loop.call_soon_threadsafe(self.items.put_nowait, item)
