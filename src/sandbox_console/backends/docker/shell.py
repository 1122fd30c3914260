"""A shell on a PTY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandbox_console.backends.base import PassedShell
from sandbox_console.backends.docker.failures import Refused, about
from sandbox_console.backends.docker.paths import container_path, described
from sandbox_console.backends.docker.terminal_size import LatestSize
from sandbox_console.errors import Unsupported
from sandbox_console.model.sandbox import Exit
from sandbox_console.model.shells import NO_SHELL, NO_SHELL_HINT, SHELLS

if TYPE_CHECKING:
    from sandbox_console.backends.docker.engine import Engine
    from sandbox_console.backends.docker.process import Execution


class DockerTerminal:
    """An exec with a terminal."""

    def __init__(self, engine: Engine, execution: Execution) -> None:
        self._engine = engine
        self._execution = execution
        self._size = LatestSize(self._resize)

    async def read(self) -> bytes:
        chunk = await self._execution.read()
        return chunk[1] if chunk is not None else b""

    async def write(self, data: bytes) -> None:
        await self._execution.write(data)

    async def resize(self, cols: int, rows: int) -> None:
        await self._size.want(cols, rows)

    async def resized(self, cols: int, rows: int) -> bool:
        """Resize the PTY; returns False if the process does not exist yet or any more."""
        try:
            await self._resize(cols, rows)
        except Refused:
            return False
        return True

    async def _resize(self, cols: int, rows: int) -> None:
        await self._engine.call("POST", f"exec/{self._execution.id}/resize", params={"h": rows, "w": cols})

    def passed(self) -> PassedShell:
        connection, pending = self._execution.channel.duplicate()
        engine = str(self._engine.endpoint.socket)
        return PassedShell(kind="engine", files=(connection,), pending=pending, engine=engine, exec=self._execution.id)

    def release(self) -> None:
        self._size.stop()
        self._execution.release()

    async def wait(self) -> Exit:
        return await self._execution.wait()

    async def close(self) -> None:
        self._size.stop()
        await self._execution.end()


async def choose(engine: Engine, container: str) -> str:
    """The best shell of the image, found without running anything. Raises NotFound, Unsupported if there is none."""
    for path in SHELLS:
        if await engine.exists(container_path(container, "archive"), {"path": path}):
            return path
    with about(described(container)):  # a missing container also answers "not found"
        await engine.call("GET", container_path(container, "json"))
    raise Unsupported(NO_SHELL, hint=NO_SHELL_HINT)
