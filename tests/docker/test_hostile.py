"""A container that another made, with hostile text wherever the engine lets it: nothing of it acts on a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import aiohttp
import pytest
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import SandboxRef

pytestmark = requires("docker")

ESC = "\x1b]0;owned\x07\x1b[2J\x1b[31m"
HOSTILE = f"{ESC}\u202egpj.exe\u200b\r\n[bold]x[/] \x9b31m\u0000".replace("\0", "")
LINES = b"\x1b]52;c;aGk=\x07\x1b[2Jcleared\nplain\n\xff\xfe\x80not text\n" + "\u202eback\n".encode()


async def made(engine, name):
    body = {
        "Image": IMAGE,
        "Entrypoint": ["sh", "-c", 'cat "$0"; exec sleep 1000', "/hostile", HOSTILE],
        "Cmd": [HOSTILE],
        "Env": [f"EVIL={HOSTILE}", f"{ESC}=x", "EMPTY"],
        "Labels": {HOSTILE: HOSTILE, "com.docker.compose.project": HOSTILE, "sandbox-console.managed": HOSTILE},
        "HostConfig": {"NetworkMode": "none", "Tmpfs": {f"/t{ESC}": ""}},
        "WorkingDir": f"/{ESC}",
        "User": "0",
    }
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(engine.socket))) as session,
        session.post("http://engine/v1.41/containers/create", params={"name": name}, json=body) as answer,
    ):
        assert answer.status == 201, await answer.text()
        return (await answer.json())["Id"]


@pytest.fixture
async def hostile(docker_engine, unique, tmp_path):
    name = unique()
    container = await made(docker_engine, name)
    try:
        (tmp_path / "hostile").write_bytes(LINES)
        docker_engine.docker("cp", str(tmp_path / "hostile"), f"{container}:/hostile")
        docker_engine.docker("start", container)
        yield name, SandboxRef("docker", "default", container)
    finally:
        docker_engine.docker("rm", "-f", container)


async def test_the_backend_passes_all_of_it_on_as_it_is(backend, hostile):
    _, ref = hostile
    row = next(row for row in await backend.list() if row.ref == ref)
    found = await backend.inspect(ref)
    for one in (row, found):
        assert (one.managed, one.labels[HOSTILE], one.maker) == (False, HOSTILE, f"compose:{HOSTILE}")
    facts = {fact.field: fact.value for fact in found.effective}
    assert facts["env EVIL"] == HOSTILE
    assert HOSTILE in facts["command"]
    assert json.dumps(dict(await backend.raw(ref)))
    assert "EVIL=***" in (await backend.raw(ref))["Config"]["Env"]
    assert any("sleep 1000" in row.command for row in await backend.processes(ref))
    seen = b""
    async with asyncio.timeout(30):
        async for batch in backend.logs(ref, LogQuery(follow=True)):
            seen += b"".join(item.data for item in batch)
            # The engine's json-file driver keeps text, and replaces what is none.
            if seen == LINES.decode("utf-8", "replace").encode():
                break
    assert [one.what async for one in backend.guest_events(ref, since=None, follow=False)][:1] == ["create"]


@pytest.mark.parametrize("words", [("ls", "--all"), ("show", "NAME"), ("rm", "NAME", "--yes"), ("start", "NAME/x")])
async def test_the_command_line_shows_none_of_it(hostile, docker_engine, tmp_path, words):
    name, _ = hostile
    environment = os.environ | {
        "SANDBOX_CONSOLE_HOME": str(tmp_path),
        "DOCKER_HOST": docker_engine.url,
        "PYTHONUTF8": "1",
    }
    words = [word.replace("NAME", name) for word in words]
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-m", "sandbox_console", *words],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    shown = done.stdout + done.stderr
    assert name in shown
    assert not set(shown) & {*"\x1b\x07\x9b\u202e\u200b\r"}, words
