"""How often a list asks an engine what it is."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.service.reads.fleet import Fleet

ANSWERS = {
    "version": {"Version": "27.0", "ApiVersion": "1.47", "Os": "linux"},
    "info": {"ID": "x"},
    "containers/json": [],
}


async def test_a_list_asks_an_engine_once_what_it_is(tmp_path, monkeypatch):
    asked = Counter()

    async def serve(reader, writer):
        while head := await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b"":
            what = head.split()[1].decode().partition("?")[0].removeprefix("/v1.47").strip("/")
            asked[what] += 1
            body = json.dumps(ANSWERS.get(what, {})).encode()
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            await writer.drain()

    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 's'}")
    async with await asyncio.start_unix_server(serve, tmp_path / "s"):
        fleet = Fleet([DockerBackend("default", tmp_path / "state")])
        rows, health = await fleet.ask("docker", "default")
        assert (rows, health.ok, health.version) == ([], True, "27.0")
        assert (asked["version"], asked["info"]) == (1, 1)
        assert (await fleet.health())[0].ok
        assert (asked["version"], asked["info"]) == (2, 2)  # whoever asks for the health alone is told what holds now
        await fleet.close()


async def test_no_file_is_read_for_a_container_of_another_tool(tmp_path, monkeypatch):
    backend, asked = DockerBackend("default", tmp_path / "state"), []
    monkeypatch.setattr(backend._asked, "get", asked.append)
    await backend._last_requested({"Id": "a" * 64, "Name": "/shop-web-1", "Config": {"Labels": {"team": "red"}}})
    assert not asked
