"""The backend for OpenSandbox against the real server: lives that are renewed, diagnostics, and pools on Kubernetes.

The API of Kubernetes is a stand-in that has what the server asks of it for pools.
"""

from __future__ import annotations

import socket
import time
from datetime import datetime

import pytest
from aiohttp import web
from msgspec import structs
from tests.neighbours.hosted.threaded import served
from tests.neighbours.opensandbox import real_server
from tests.support.require import missing

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.opensandbox import OpenSandboxProvider
from sandbox_console.errors import Unsupported
from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
pytestmark = pytest.mark.timeout(400)  # the imports of the server take a minute of a busy machine
POOLS = "/apis/sandbox.opensandbox.io/v1alpha1/namespaces/boxes/pools"


def needs(*names: str) -> None:
    for name in names:
        if reason := missing(name):
            pytest.skip(f"{name}: {reason}")


def backend_of(url, folder):
    async def read(_: str) -> str:
        return real_server.KEY

    table = {"url": url, "key": "KEY", "no_network": True}
    [backend] = OpenSandboxProvider.backends(BackendSettings(folder, {"servers": {"lab": table}}, key=read))
    return backend


@pytest.fixture(scope="module")
def server():
    needs("docker", "opensandbox")
    with real_server.running() as (url, _):
        yield url


async def test_a_life_is_kept_and_renewed_and_diagnostics_are_told(server, tmp_path, permit):
    backend = backend_of(server, tmp_path / "state")
    spec = SandboxSpec(
        "lived", image=real_server.IMAGE, command=("sleep", "1000"), memory_mib=256, max_duration_s=600.0,
        env={"TOKEN": "canary-of-a-variable"},
    )  # fmt: skip
    ref = await backend.create(await permit("create"), spec, (), lambda _: None)
    await backend.start(await permit("start"), ref, ())
    try:
        assert 500 < await left(backend, ref) < 610
        await backend.update(await permit("update"), ref, structs.replace(spec, max_duration_s=7200.0))
        assert 7000 < await left(backend, ref) < 7210
        told = (await backend.raw(ref))["diagnostics"]
        assert any(line.split() == ["Running:", "True"] for line in told["inspect"]), told
        assert any(line.startswith("Started:") for line in told["events"]), told
        assert "canary" not in str(told)
        assert list(await backend.images()) == [], "a server on Docker has no pools"
    finally:
        await backend.remove(await permit("remove"), ref, True)
        await backend.close()


async def test_a_sandbox_without_a_time_cannot_be_given_one(server, tmp_path, permit):
    backend = backend_of(server, tmp_path / "state")
    spec = SandboxSpec("forever", image=real_server.IMAGE, command=("sleep", "1000"), memory_mib=256)
    ref = await backend.create(await permit("create"), spec, (), lambda _: None)
    await backend.start(await permit("start"), ref, ())
    try:
        assert (await backend.inspect(ref)).status is Status.RUNNING
        with pytest.raises(Unsupported, match="forever"):
            await backend.update(await permit("update"), ref, structs.replace(spec, max_duration_s=600.0))
    finally:
        await backend.remove(await permit("remove"), ref, True)
        await backend.close()


async def left(backend, ref) -> float:
    facts = {fact.field: fact.value for fact in (await backend.inspect(ref)).effective}
    return datetime.fromisoformat(facts["expires"]).timestamp() - time.time()


class Cluster:
    """What the server asks of Kubernetes for a pool."""

    def __init__(self) -> None:
        self.made: list[tuple[str, dict]] = []

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            body = await request.json()
            self.made.append((request.path, body))
            return web.json_response({**body, "metadata": {**body["metadata"], "uid": "u1"}})
        if request.path == POOLS:
            spec = {"capacitySpec": {"bufferMax": 2, "bufferMin": 1, "poolMax": 9, "poolMin": 0}}
            status = {"total": 3, "allocated": 1, "available": 2, "revision": "r"}
            meta = {"name": "warm", "creationTimestamp": "2026-01-01T00:00:00Z"}
            return web.json_response({"items": [{"metadata": meta, "spec": spec, "status": status}]})
        if request.path.endswith("s") and "watch" not in request.query:
            return web.json_response({"items": [], "metadata": {"resourceVersion": "1"}})
        return web.json_response({"kind": "Status", "code": 404}, status=404)

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        return app


async def test_pools_of_the_real_server_on_kubernetes(tmp_path, permit):
    needs("opensandbox")
    cluster = Cluster()
    with served(cluster.app()) as api, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        with real_server.on_kubernetes(api, port, tmp_path) as url:
            backend = backend_of(url, tmp_path / "state")
            [pool] = await backend.images()
            assert (pool.names, pool.needed) == (("pool:warm",), "2 of 3 ready, at most 9")
            found = await backend._client.pools()
            assert found[0].capacity_spec.pool_max == 9
            await backend.close()
