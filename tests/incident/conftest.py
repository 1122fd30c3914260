from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.library.conftest import IMAGES, backend, home
from tests.support.engine import docker_engine
from tests.support.permits import MakePermit, permit

from sandbox_console.errors import NotFound
from sandbox_console.model import action
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, Console, open_console

__all__ = ["MakePermit", "backend", "docker_engine", "home", "permit"]

Make = Callable[..., Awaitable[SandboxRef]]


@pytest.fixture
async def console(backend: str, home: Path) -> AsyncIterator[Console]:
    async with open_console(Config(), only_backend=backend) as made:
        yield made


@pytest.fixture
async def make(console: Console, backend: str) -> AsyncIterator[Make]:
    """``await make("sh", "-c", ..., **fields)``: a started sandbox that the test need not remove."""
    made: list[SandboxRef] = []
    [place] = [place for place in console.places if place[0] == backend]

    async def one(*command: str, name: str = "", **fields: object) -> SandboxRef:
        image = str(fields.pop("image", IMAGES[backend]))
        spec = SandboxSpec(name or f"t{len(made)}", image, command, **fields)  # type: ignore[arg-type]
        ref = (await console.perform(action.Create(spec, *place)).result()).ref
        assert ref is not None
        made.append(ref)
        return ref

    yield one
    for ref in made:
        with contextlib.suppress(NotFound):
            await console.perform(action.Remove(ref, force=True), consent=Consent(yes=True, confirm=ref.id)).result()


async def until_ended(console: Console, ref: SandboxRef) -> Sandbox:
    """The sandbox once it has ended."""
    async with asyncio.timeout(60):
        while (found := await console.inspect(ref)).status.live or found.finished_at is None:
            await asyncio.sleep(0.1)
    return found
