"""What the console says when the API server is killed, a watch is too old, or a node is silent: on a real cluster."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import urllib.request
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest
from tests.support.kubernetes import IMAGE, kubectl, namespace
from tests.support.require import requires

from sandbox_console.backends.kubernetes import watch
from sandbox_console.backends.kubernetes.backend import KubernetesBackend
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.failures import Gone
from sandbox_console.backends.kubernetes.scope import Scope
from sandbox_console.model.event import Changed, HealthChanged, Listed
from sandbox_console.model.sandbox import HealthState, Status
from sandbox_console.model.spec import SandboxSpec

pytestmark = [requires("kubernetes"), pytest.mark.slow]


@pytest.fixture(scope="module")
def space():
    with namespace() as name:
        yield name


@pytest.fixture
async def backend(space, tmp_path):
    scope = Scope("test", space, kubeconfig=Path(os.environ["KUBECONFIG"]), network_policy=True)
    backend = KubernetesBackend(scope, tmp_path / "state")
    await backend.open()
    yield backend
    await backend.close()


async def until(events, fits):
    async with asyncio.timeout(150):
        async for event in events:
            if fits(event):
                return event
    raise AssertionError


@contextmanager
def killed_server():
    """The API server of the test cluster, killed, and started again at the end."""
    state = Path(os.environ["KUBECONFIG"]).parent
    pids = state / "pids"
    old = next(line.split()[0] for line in pids.read_text().splitlines() if line.endswith(" apiserver"))
    argv = Path(f"/proc/{old}/cmdline").read_bytes().decode().split("\0")[:-1]
    os.kill(int(old), signal.SIGKILL)
    try:
        yield
    finally:
        with (state / "log/apiserver.log").open("ab") as log:
            again = subprocess.Popen(argv, cwd=state, stdout=log, stderr=log, start_new_session=True)
        pids.write_text(pids.read_text().replace(f"{old} apiserver", f"{again.pid} apiserver"))


async def test_a_killed_server_is_unreachable_and_its_list_comes_again(backend, permit):
    ref = await backend.create(await permit("create"), SandboxSpec("kept", image=IMAGE), (), print)
    async with aclosing(backend.watch()) as events:
        first = await until(events, lambda event: isinstance(event, Listed))
        assert [one.name for one in first.sandboxes] == ["kept"]
        with killed_server():
            down = await until(events, lambda event: isinstance(event, HealthChanged) and not event.health.ok)
            assert down.health.state is HealthState.UNREACHABLE
            assert "'test' does not answer" in down.health.reason
        again = await until(events, lambda event: isinstance(event, Listed))
        assert [one.ref for one in again.sandboxes] == [ref]
        kubectl("-n", backend._cluster.namespace, "label", "sandbox", "kept", "seen=after")
        await until(events, lambda event: isinstance(event, Changed) and event.sandbox.ref == ref)
    await backend.remove(await permit("remove"), ref, force=True)


async def test_a_version_that_was_compacted_is_gone(backend):
    """etcd is told to forget, as the API server tells it every five minutes."""
    ports = Path(f"/proc/{_pid('etcd')}/cmdline").read_bytes().decode().split("\0")
    url = ports[ports.index("--advertise-client-urls") + 1]
    version = int(json.loads(kubectl("get", "--raw", "/api/v1/namespaces"))["metadata"]["resourceVersion"])
    data = json.dumps({"revision": str(version)}).encode()
    await asyncio.to_thread(urllib.request.urlopen, urllib.request.Request(f"{url}/v3/kv/compaction", data))
    cluster = Cluster(backend._cluster.scope)
    try:
        async with asyncio.timeout(30):
            with pytest.raises(Gone, match="too old resource version"):
                await watch._follow(cluster, "boxes", "1", asyncio.Queue())
    finally:
        await cluster.close()


def _pid(name):
    lines = (Path(os.environ["KUBECONFIG"]).parent / "pids").read_text().splitlines()
    return next(line.split()[0] for line in lines if line.endswith(f" {name}"))


async def test_a_silent_node_loses_its_sandboxes_and_gives_them_back(backend, permit):
    spec = SandboxSpec("on-node", image=IMAGE, command=("sleep", "1000"))
    ref = await backend.create(await permit("create"), spec, (), print)
    await backend.start(await permit("start"), ref, ())
    [kubelet] = [
        int(one.parent.name)
        for one in Path("/proc").glob("[0-9]*/cmdline")
        if one.read_bytes().startswith(b"kubelet\0")
        and str(Path(os.environ["KUBECONFIG"]).parent).encode() in one.read_bytes()
    ]
    async with aclosing(backend.watch()) as events:

        def shown(event):
            rows = (
                event.sandboxes if isinstance(event, Listed) else [event.sandbox] if isinstance(event, Changed) else []
            )
            return next((row for row in rows if row.ref == ref), None)

        await until(events, lambda event: (row := shown(event)) and row.status is Status.RUNNING)
        os.kill(kubelet, signal.SIGSTOP)
        try:
            lost = shown(await until(events, lambda event: (row := shown(event)) and row.status is Status.LOST))
            assert lost.detail.startswith("node lost: node1 does not answer")
        finally:
            os.kill(kubelet, signal.SIGCONT)
        await until(events, lambda event: (row := shown(event)) and row.status is Status.RUNNING)
    await backend.remove(await permit("remove"), ref, force=True)
