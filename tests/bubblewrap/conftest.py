from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.as_user import UID
from tests.support.permits import MakePermit, permit
from tests.support.require import missing

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_console.errors import NotFound
from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.log import LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import Exit, SandboxRef
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

__all__ = ["permit"]

ROOT = os.geteuid() == 0


@pytest.fixture(autouse=True, scope="session")
def _bubblewrap() -> None:
    if reason := missing("bubblewrap"):
        pytest.skip(reason)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state" / "bubblewrap"


@pytest.fixture
def options() -> dict[str, Any]:
    return {}


@pytest.fixture
async def backend(state_dir: Path, options: dict[str, Any]) -> AsyncIterator[BubblewrapBackend]:
    (made,) = BubblewrapProvider.backends(BackendSettings(state_dir, options))
    assert isinstance(made, BubblewrapBackend)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may reach: pytest's own are closed to root's sandboxes."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="sandbox-console-test-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def workspace(open_folder: Path) -> Path:
    folder = open_folder / "work"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


class Box:
    """One sandbox under test."""

    def __init__(self, backend: BubblewrapBackend, permit: MakePermit, ref: SandboxRef) -> None:
        self.backend, self.permit, self.ref = backend, permit, ref

    @property
    def folder(self) -> Path:
        return self.backend._store.folder / self.ref.id

    @property
    def raw(self) -> Any:
        return self.backend._store.get(self.ref.id).raw

    async def start(self, *secrets: ResolvedSecret) -> None:
        await self.backend.start(await self.permit("start"), self.ref, secrets)

    async def stop(self, grace_s: float = 5.0) -> None:
        await self.backend.stop(await self.permit("stop"), self.ref, grace_s)

    async def kill(self, signal: str = "SIGKILL") -> None:
        await self.backend.kill(await self.permit("kill"), self.ref, signal)

    async def remove(self, force: bool = True) -> None:
        await self.backend.remove(await self.permit("remove"), self.ref, force)

    async def show(self) -> Any:
        return await self.backend.inspect(self.ref)

    async def exec(self, *argv: str, secrets: Any = (), **fields: Any) -> Any:
        return await self.backend.exec(await self.permit("exec"), Exec(self.ref, argv, **fields), secrets)

    async def shell(self, **fields: Any) -> Any:
        return await self.backend.shell(await self.permit("shell"), OpenShell(self.ref, **fields), [])

    async def run(self, *argv: str, stdin: bytes = b"", secrets: Any = (), **fields: Any) -> tuple[Exit, bytes, bytes]:
        process = await self.exec(*argv, secrets=secrets, **fields)
        out = {Stream.STDOUT: b"", Stream.STDERR: b""}

        async def feed() -> None:
            await process.write(stdin)
            await process.close_stdin()

        feeding = asyncio.create_task(feed())
        async for stream, data in process.output():
            out[stream] += data
        await feeding
        return await process.wait(), out[Stream.STDOUT], out[Stream.STDERR]

    async def sh(self, script: str, **fields: Any) -> str:
        _end, out, err = await self.run("sh", "-c", script, **fields)
        return (out + err).decode()

    async def logs(self, **query: Any) -> list[Any]:
        return [item async for batch in self.backend.logs(self.ref, LogQuery(**query)) for item in batch]

    async def text(self) -> bytes:
        return b"".join(item.data for item in await self.logs() if isinstance(item, LogRecord))


Make = Callable[..., Awaitable[Box]]


@pytest.fixture
async def make(backend: BubblewrapBackend, permit: MakePermit) -> AsyncIterator[Make]:
    """``await make("sh", "-c", ..., start=True, secrets=(), **fields)``: a sandbox that is removed in the end."""
    made: list[Box] = []

    async def one(*command: str, start: bool = True, secrets: Any = (), **fields: Any) -> Box:
        fields = {"name": f"box-{len(made)}", "command": command, **fields}
        spec = SandboxSpec(**fields, secrets=tuple(secret.name for secret in secrets))
        ref = await backend.create(await permit("create"), spec, secrets, lambda _: None)
        box = Box(backend, permit, ref)
        made.append(box)
        if start:
            await box.start(*secrets)
        return box

    yield one
    for box in made:
        with contextlib.suppress(NotFound):
            await box.remove()


async def until(look: Callable[[], Any], seconds: float = 60.0) -> Any:
    """The first true value of ``look``, which may be a coroutine function."""
    end = time.monotonic() + seconds
    while True:
        value = look()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < end, "it did not come"
        await asyncio.sleep(0.01)


def host_pids(marker: str) -> list[int]:
    """Processes of this host whose command line holds a text; the suite may run as root and as a user at once."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes() and int(name) != os.getpid():
                found += [int(name)] if _of_this_run(name) else []
    return found


def _of_this_run(pid: str) -> bool:
    uid = int(Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split()[0])
    return uid != UID if os.getuid() == 0 else uid == os.getuid()
