"""Commands and files in a sandbox: the runtime answers a command when it has ended."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from sandbox_console.backends.a3s.client import Client, Place
from sandbox_console.backends.common.buffered_process import BufferedProcess, Whole
from sandbox_console.backends.common.guest_command import MARK, end_marked
from sandbox_console.backends.common.stored_archive import StoredArchives
from sandbox_console.errors import BackendError, ConsoleError
from sandbox_console.model.action import Exec
from sandbox_console.model.sandbox import Exit

if TYPE_CHECKING:
    from a3s_box import AsyncSandbox

_LATE_S = 10.0
_PIECE_MIB = 4


class A3sProcess(BufferedProcess):
    """One command. Its end is asked for by its mark, because it may go on when its call is dropped."""

    def __init__(self, client: Client, place: Place, request: Exec) -> None:
        self._client, self._place, self._mark = client, place, secrets.token_hex(8)
        limit = None if request.timeout_s is None else request.timeout_s + _LATE_S
        env = {**request.env, MARK: self._mark}
        super().__init__(self._ran(request, env, limit))

    async def _ran(self, request: Exec, env: dict[str, str], limit: float | None) -> Whole:
        try:
            return await self._client.run(
                self._place, request.argv, limit, env=env, cwd=request.workdir, user=request.user
            )
        except ConsoleError:
            if await self._stopped():
                return Whole(Exit(137, 9, reason="the sandbox ended"))
            raise

    async def _stopped(self) -> bool:
        try:
            return (await self._client.inspected(self._place.id)).state not in ("running", "paused")
        except ConsoleError:
            return False

    async def kill(self) -> None:
        """End it and what it started."""
        if not self._asked.done():
            with contextlib.suppress(ConsoleError):
                await self._client.run(self._place, end_marked(self._mark), _LATE_S)
        await super().kill()


class Guest(StoredArchives):
    """A running sandbox, for files."""

    def __init__(self, client: Client, place: Place) -> None:
        self._client, self._place = client, place

    async def run(self, argv: Sequence[str], *, stdin: bool = False) -> BufferedProcess:  # noqa: ARG002 - it has none
        """Start a command."""
        return BufferedProcess(self._client.run(self._place, argv))

    async def ask(self, script: str, *words: str) -> tuple[int | None, bytes, bytes]:
        """Run a script to its end. Raises BackendError."""
        found = await self._command(["sh", "-c", script, "sh", *words])
        if found.exit.reason:
            raise BackendError(f"{self._client.label}: {words[:1]}: {found.exit.reason}")
        return found.exit.code, found.stdout, found.stderr

    async def _command(self, argv: Sequence[str]) -> Whole:
        return await self._client.run(self._place, argv)

    async def _box(self) -> AsyncSandbox:
        return await self._client.box(self._place)

    async def _read(self, path: str) -> AsyncGenerator[bytes, None]:
        """A file in pieces, because the runtime answers with a whole file."""
        box, part, at = await self._box(), f"{path}.part", 0
        cut = 'rm -f "$2"; dd if="$1" of="$2" bs=1048576 skip="$3" count="$4" 2>/dev/null'
        while True:
            await self._checked(["sh", "-c", cut, "sh", path, part, str(at), str(_PIECE_MIB)])
            piece = await self._client.call("read", box.files.read(part, format="bytes"))
            if not piece:
                break
            yield bytes(piece) if not isinstance(piece, str) else piece.encode()
            at += _PIECE_MIB
        await self._command(["rm", "-f", part])

    async def _append(self, path: str, piece: bytes) -> None:
        box, part = await self._box(), f"{path}.part"
        await self._client.call("write", box.files.write(part, piece))
        await self._checked(["sh", "-c", 'cat "$2" >>"$1" && rm -f "$2"', "sh", path, part])

    async def _checked(self, argv: Sequence[str]) -> None:
        found = await self._command(argv)
        if found.exit.code != 0:
            said = found.stderr.decode("utf-8", "replace").strip()[:200]
            raise BackendError(f"{self._client.label}: files cannot be moved: {said or f'exit code {found.exit.code}'}")
