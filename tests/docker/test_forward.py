"""Ports of running containers, also of another tool's: with BusyBox's nc alone, and no network."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest
from tests.bubblewrap.conftest import until
from tests.support.engine import IMAGE, SHELLLESS
from tests.support.require import requires

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.errors import Conflict, NeedsConfirmation, Unsupported
from sandbox_console.model.action import Forward
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.service.sessions.forward import forward

pytestmark = requires("docker")

# Each client is sent as much as one that holds it back cannot have in its buffers, and then what it said.
_SERVER = """
printf '#!/bin/sh\\nhead -c 20000000 /dev/zero; exec cat\\n' > /tmp/answer; chmod +x /tmp/answer
while :; do nc -l -p 7000 -e /tmp/answer; done
"""


@pytest.fixture
async def console(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    async with open_console(Config(), backends=[DockerBackend("default")]) as made:
        yield made


async def run(engine, console, name, *words):
    engine.docker("run", "-d", "--network", "none", "--name", name, *words)
    return (await console.find(name)).ref


async def test_a_container_of_another_tool_answers_here_once_its_id_is_confirmed(engine, console, unique):
    name = unique()
    ref = await run(engine, console, name, IMAGE, "sh", "-c", _SERVER)
    try:
        with pytest.raises(NeedsConfirmation):
            await forward(console, Forward(ref, 7000), consent=Consent(yes=True))
        held = await forward(console, Forward(ref, 7000), consent=Consent(confirm=ref.id))
        port = int(held.forwarding.host_address.rpartition(":")[2])
        got = await until(lambda: answered(port))
        assert hashlib.sha256(got).hexdigest() == hashlib.sha256(bytes(20_000_000) + b"hello").hexdigest()
        _, idle = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: "127.0.0.1 7000" in processes(engine, name))
        await held.release()
        assert "127.0.0.1 7000" not in processes(engine, name)
        idle.close()
        again = await forward(console, Forward(ref, 7000), consent=Consent(confirm=ref.id))
        engine.docker("kill", name)
        assert await asyncio.wait_for(again.ended(), 60) == f"{name} is no longer running: it is exited"
        with pytest.raises(Conflict):
            await forward(console, Forward(ref, 7000), consent=Consent(confirm=ref.id))
    finally:
        engine.docker("rm", "-f", name)


async def answered(port: int) -> Any:
    """What the server says, or nothing while it does not answer yet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"hello")
        writer.write_eof()
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def processes(engine, name: str) -> str:
    return str(engine.docker("exec", name, "ps", "-o", "args"))


async def test_an_image_without_a_shell_is_told_before_anything_listens(engine, console, unique):
    name = unique()
    ref = await run(engine, console, name, SHELLLESS)
    try:
        with pytest.raises(Unsupported, match="has no program that could connect"):
            await forward(console, Forward(ref, 7000), consent=Consent(confirm=ref.id))
    finally:
        engine.docker("rm", "-f", name)
