"""What the tests on real microVMs share: consoles on one home, sandboxes that are removed, waiting."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.support.microimage import microsandbox_home
from tests.support.permits import permit

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.microsandbox import MicrosandboxProvider
from sandbox_console.model.action import Exec
from sandbox_console.model.log import Stream

__all__ = ["microsandbox_home", "permit"]

PATIENCE_S = 120


@pytest.fixture
def folder(tmp_path, microsandbox_home):
    return tmp_path


def console(folder, **options):
    """The backend as one console has it; a second call is the next console."""
    [backend] = MicrosandboxProvider.backends(BackendSettings(folder / "microsandbox", options))
    return backend


@pytest.fixture
async def make(folder, permit):
    """Makes sandboxes that are removed at the end."""
    made = []

    async def one(backend, spec, secrets=()):
        ref = await backend.create(await permit("create"), spec, secrets, lambda _: None)
        made.append((backend, ref))
        await backend.start(await permit("start"), ref, secrets)
        return ref

    one.made = made
    yield one
    for backend, ref in made:
        await backend.remove(await permit("remove"), ref, force=True)


async def run(backend, permit, ref, script, secrets=()):
    """A script's exit code and output."""
    process = await backend.exec(await permit("exec"), Exec(ref, ("sh", "-c", script)), secrets)
    await process.close_stdin()
    out = b""
    async with asyncio.timeout(PATIENCE_S):
        async for stream, data in process.output():
            out += data if stream is Stream.STDOUT else b""
        return (await process.wait()).code, out.decode()


async def until(look, what):
    """Poll until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not await look():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.1)
