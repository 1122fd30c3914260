from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.support.engine import IMAGE, DockerEngine, docker_engine
from tests.support.permits import MakePermit, permit

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.errors import ConsoleError
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import Exit, SandboxRef
from sandbox_console.model.spec import SandboxSpec

__all__ = ["docker_engine", "permit"]

_numbers = itertools.count()

Make = Callable[..., Awaitable[SandboxRef]]


@pytest.fixture
def engine(docker_engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> DockerEngine:
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    return docker_engine


@pytest.fixture
async def backend(engine: DockerEngine) -> AsyncIterator[DockerBackend]:
    made = DockerBackend("default")
    await made.open()
    yield made
    await made.close()


@pytest.fixture
def unique() -> Callable[[], str]:
    return lambda: f"t{os.getpid()}-{next(_numbers)}"


@pytest.fixture
async def make(backend: DockerBackend, permit: MakePermit, unique: Callable[[], str]) -> AsyncIterator[Make]:
    """``await make("sh", "-c", ..., start=True, secrets=(), **fields)``: a sandbox that the test need not remove."""
    made: list[SandboxRef] = []

    async def one(*command: str, start: bool = True, secrets: Any = (), **fields: Any) -> SandboxRef:
        fields = {"name": unique(), "image": IMAGE, "command": command or ("sleep", "1000"), **fields}
        spec = SandboxSpec(**fields, secrets=tuple(secret.name for secret in secrets))
        ref = await backend.create(await permit("create"), spec, secrets, lambda _: None)
        made.append(ref)
        if start:
            await backend.start(await permit("start"), ref, secrets)
        return ref

    yield one
    for ref in made:
        try:
            await backend.remove(await permit("remove"), ref, force=True)
        except ConsoleError:
            continue


async def collect(process: Any) -> tuple[bytes, bytes, Exit]:
    """A command's stdout, stderr and end."""
    out, err = bytearray(), bytearray()
    async for stream, data in process.output():
        (err if stream is Stream.STDERR else out).extend(data)
    return bytes(out), bytes(err), await process.wait()
