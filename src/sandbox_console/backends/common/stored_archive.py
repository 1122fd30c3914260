"""Files moved as archives that are stored in the sandbox meanwhile, for servers whose commands have no streams."""

from __future__ import annotations

import contextlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from sandbox_console.backends.common import guest_tar
from sandbox_console.backends.common.buffered_process import Whole
from sandbox_console.backends.tarscan import guarded
from sandbox_console.errors import BackendError, Conflict, ConsoleError, Unsupported

_FOLDER = "/tmp"  # noqa: S108 - the guest's
_PIECE = 4 << 20


class StoredArchives(ABC):
    """Packs and unpacks with the image's ``sh``, ``tar`` and ``rm``."""

    @abstractmethod
    async def _command(self, argv: Sequence[str]) -> Whole:
        """Run words to their end. Raises a ConsoleError."""

    @abstractmethod
    def _read(self, path: str) -> AsyncGenerator[bytes, None]:
        """The content of a file of the sandbox."""

    @abstractmethod
    async def _append(self, path: str, piece: bytes) -> None:
        """Write a piece at the end of a file of the sandbox, which may not exist yet."""

    async def download(self, path: str) -> AsyncGenerator[bytes, None]:
        """A tar of ``path``: written in the guest, read, and removed."""
        archive = _archive()
        try:
            packed = [word.replace("-cf -", f"-cf {archive}") for word in guest_tar.pack(path, "sh")]
            judge(await self._command(packed), path)
            async with aclosing(self._read(archive)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            await self._drop(archive)

    async def upload(self, path: str, archive: AsyncIterator[bytes]) -> None:
        """Unpack a tar into the folder ``path``. Raises UsageError for a member that would leave it."""
        judge(await self._command(["sh", "-c", guest_tar.NEED_FOLDER, "sh", path]), path)
        file = _archive()
        try:
            async for piece in _pieces(guarded(archive)):
                await self._append(file, piece)
            judge(await self._command(["tar", "-xf", file, "-C", path]), path)
        finally:
            await self._drop(file)

    async def _drop(self, file: str) -> None:
        with contextlib.suppress(ConsoleError):
            await self._command(["rm", "-f", file, f"{file}.part"])


def _archive() -> str:
    return f"{_FOLDER}/.sandbox-console-{secrets.token_hex(8)}.tar"


async def _pieces(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        while len(held) >= _PIECE:
            yield bytes(held[:_PIECE])
            del held[:_PIECE]
    if held:
        yield bytes(held)


def judge(found: Whole, path: str) -> None:
    """Raise what the end of a command that moves ``path`` means."""
    if found.exit.code == 0:
        return
    guest_tar.need_path(found.exit.code, path)
    if found.exit.code in (126, 127):
        raise Unsupported("the image lacks sh, tar or rm, which files are moved by", hint="use an image that has them")
    message = found.stderr.decode("utf-8", "replace").strip()[:300]
    if "Read-only file system" in message or "Permission denied" in message:
        raise Conflict(f"{path} cannot be written: {message}")
    raise BackendError(f"{path} could not be moved: {message}")
