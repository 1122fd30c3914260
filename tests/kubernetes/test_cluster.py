"""The backend on the real cluster of ``make test-k8s``: causes, watches, forwards, rights and the audit log."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import aclosing
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.kubernetes import FOLDER, IMAGE, kubectl, namespace
from tests.support.require import requires

from sandbox_console.backends.common.remote_audit import noted
from sandbox_console.backends.kubernetes.backend import KubernetesBackend
from sandbox_console.backends.kubernetes.scope import Scope
from sandbox_console.errors import BackendError, BackendUnreachable, Conflict, InvalidSpec, NotFound
from sandbox_console.model.action import Exec
from sandbox_console.model.capability import Capability
from sandbox_console.model.event import Changed, Listed
from sandbox_console.model.log import LogQuery, LogRecord
from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.verdict import verdict

pytestmark = [requires("kubernetes")]
ARGV = ("cat", "/name")
CAUSES = {
    "oom": "out of memory",
    "crash": "its command failed: exit 3",
    "noimage": "it never ran: ImagePullBackOff",
    "toolarge": "it never ran: unschedulable",
    "badinit": "it never ran: init container first: CrashLoopBackOff",
    "evicted": "lost: evicted",
    "done": "it finished: exit 0",
}


@pytest.fixture(scope="module")
def space():
    with namespace() as name:
        yield name


@pytest.fixture
async def backend(space, tmp_path):
    file = Path(os.environ["KUBECONFIG"])
    backend = KubernetesBackend(Scope("test", space, "run=causes", file, network_policy=True), tmp_path / "state")
    await backend.open()
    yield backend
    await backend.close()


def spec(name, script):
    return SandboxSpec(name, image=IMAGE, command=("sh", "-c", script))


async def test_the_causes_are_told_as_they_come(backend, space):
    kubectl("-n", space, "create", "--validate=false", "-f", str(FOLDER / "causes.yaml"))
    waiting = dict(CAUSES)
    async with asyncio.timeout(110), aclosing(backend.watch()) as events:
        async for event in events:
            rows = (
                event.sandboxes if isinstance(event, Listed) else [event.sandbox] if isinstance(event, Changed) else []
            )
            for row in rows:
                judged = verdict(row, ())
                if judged is not None and judged.headline.startswith(waiting.get(row.name, "\0")):
                    del waiting[row.name]
            if not waiting:
                return


async def test_a_log_has_the_run_before_a_restart(backend):
    ref = next(one.ref for one in await backend.list() if one.name == "crash")
    async with asyncio.timeout(60):
        while not (items := [item async for batch in backend.logs(ref, LogQuery()) for item in batch]):
            await asyncio.sleep(0.5)
    assert items[0].data == b"last words\n"


async def test_one_of_several_containers_is_chosen(backend, permit):
    ref = next(one.ref for one in await backend.list() if one.name == "two")

    async def lines(container, **query):
        ref_of = structs.replace(ref, container=container)
        return b"".join([one.data async for batch in backend.logs(ref_of, LogQuery(**query)) for one in batch])

    async def out(container):
        process = await backend.exec(await permit("exec"), Exec(structs.replace(ref, container=container), ARGV), ())
        found = b"".join([data async for _, data in process.output()])
        await process.wait()
        return found

    assert await lines("first") == b"from init\n"
    assert [await lines(""), await lines("side")] == [b"from main\n", b"from side\n"]
    assert [await out(""), await out("side")] == [b"main\n", b"side\n"]
    info = await backend.stat(structs.replace(ref, container="side"), "/only-side")
    assert info.name == "only-side"
    with pytest.raises(NotFound):
        await backend.stat(ref, "/only-side")
    with pytest.raises(Conflict, match="container first is not running"):
        await out("first")
    with pytest.raises(NotFound, match="no container 'other'") as caught:
        await lines("other")
    assert caught.value.hint == "there is: main, side, first"


async def test_the_run_before_a_restart_can_be_read_alone(backend):
    ref = next(one.ref for one in await backend.list() if one.name == "crash")

    async def printed() -> list[bytes]:
        """What it printed; nothing between two runs, when the node may have neither."""
        batches = [batch async for batch in backend.logs(ref, LogQuery(previous=True))]
        return [item.data for batch in batches for item in batch if isinstance(item, LogRecord)]

    async with asyncio.timeout(60):
        while not (lines := await printed()):
            await asyncio.sleep(0.5)
    assert lines == [b"last words\n"]


async def test_a_port_is_reached_and_the_servers_audit_log_has_the_ids(backend, permit):
    with noted() as ids:
        ref = await backend.create(
            await permit("create"), spec("web", "echo found > /tmp/f; httpd -f -p 8080 -h /tmp"), (), print
        )
        await backend.start(await permit("start"), ref, ())
    told = (Path(os.environ["KUBECONFIG"]).parent / "audit.log").read_text()
    assert len(ids) >= 3
    assert all(f'"auditID":"{one}"' in told for one in ids)
    await asyncio.sleep(1)
    process = await backend.connect(await permit("forward"), ref, 8080)
    await process.write(b"GET /f HTTP/1.0\r\n\r\n")
    answer = b""
    async for _, data in process.output():
        answer += data
        if answer.endswith(b"found\n"):
            break
    await process.kill()
    assert answer.endswith(b"found\n")
    closed = await backend.connect(await permit("forward"), ref, 8081)
    assert (await closed.wait()).code != 0
    await backend.remove(await permit("remove"), ref, force=True)


async def test_a_secret_of_the_cluster_is_named_and_never_read(backend, space, permit):
    kubectl("-n", space, "create", "secret", "generic", "github", "--from-literal=token=value-in-cluster")
    one = SandboxSpec(
        "named", image=IMAGE, command=("sh", "-c", "echo $T; sleep 100"), env={"T": "secretKeyRef:github/token"}
    )
    ref = await backend.create(await permit("create"), one, (), print)
    await backend.start(await permit("start"), ref, ())
    async with asyncio.timeout(30):
        while not (items := [item async for batch in backend.logs(ref, LogQuery()) for item in batch]):
            await asyncio.sleep(0.3)
    assert items[0].data == b"value-in-cluster\n"
    assert "value-in-cluster" not in str(await backend.raw(ref)) + str(await backend.inspect(ref))
    await backend.remove(await permit("remove"), ref, force=True)


async def test_a_runtime_class_is_used_or_missed(backend, permit):
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "plain"}, "handler": "runc"}
    kubectl("apply", "--validate=false", "-f", "-", stdin=json.dumps(runtime))
    asked = structs.replace(spec("classed", "sleep 1000"), runtime="plain")
    ref = await backend.create(await permit("create"), asked, (), print)
    await backend.start(await permit("start"), ref, ())
    found = await backend.inspect(ref)
    assert found.status is Status.RUNNING
    assert ("runtime", "plain") in [(one.field, one.value) for one in found.effective]
    await backend.remove(await permit("remove"), ref, force=True)
    with pytest.raises(InvalidSpec, match="no RuntimeClass 'gvisor'"):
        await backend.create(await permit("create"), structs.replace(asked, runtime="gvisor"), (), print)


async def test_a_suspended_one_is_resumed_with_a_new_pod(backend, permit):
    ref = await backend.create(await permit("create"), spec("again", "echo run; sleep 1000"), (), print)
    assert (await backend.inspect(ref)).status is Status.CREATED
    await backend.start(await permit("start"), ref, ())
    first = (await backend.inspect(ref)).started_at
    await backend.stop(await permit("stop"), ref, 1)
    assert (await backend.inspect(ref)).status is Status.EXITED
    await backend.start(await permit("start"), ref, ())
    again = await backend.inspect(ref)
    assert again.status is Status.RUNNING
    assert again.started_at != first
    await backend.remove(await permit("remove"), ref, force=True)


async def test_a_claim_takes_a_sandbox_of_a_pool_and_goes_with_it(backend, space, permit):
    """The API server and its objects are real; a stand-in binds the Claim (claim_controller.py)."""
    kubectl("-n", space, "create", "--validate=false", "-f", str(FOLDER / "pools.yaml"))
    async with asyncio.timeout(60):
        while "1 of 1 ready" not in str([one.needed for one in await backend.images()]):
            await asyncio.sleep(0.3)
    [warm] = [one for one in await backend.list() if one.maker == "SandboxWarmPool warm"]
    assert backend.validate(SandboxSpec("mine", image="pool:warm")) == {}
    ref = await backend.create(await permit("create"), SandboxSpec("mine", image="pool:warm"), (), print)
    mine = await backend.inspect(ref)
    assert (ref, mine.name, mine.status, mine.managed) == (warm.ref, "mine", Status.RUNNING, True)
    with pytest.raises(InvalidSpec, match="lets its sandboxes out"):
        await backend.create(await permit("create"), SandboxSpec("out", image="pool:open"), (), print)
    with pytest.raises(BackendError, match="EnvVarsInjectionRejected"):
        await backend.create(await permit("create"), SandboxSpec("env", image="pool:warm", env={"A": "1"}), (), print)
    await backend.remove(await permit("remove"), ref, force=True)
    assert not {"mine", "env", "out"} & {one.name for one in await backend.list()}


@pytest.mark.parametrize("image", ["template:quiet", f"pod:{IMAGE}"])
async def test_a_template_and_a_plain_pod_run(backend, space, permit, image):
    name = f"made-{image.partition(':')[0]}"
    asked = SandboxSpec(name, image=image, command=("sh", "-c", "echo $A; sleep 100"), env={"A": "seen"})
    ref = await backend.create(await permit("create"), asked, (), print)
    await backend.start(await permit("start"), ref, ())
    async with asyncio.timeout(30):
        while not (items := [item async for batch in backend.logs(ref, LogQuery()) for item in batch]):
            await asyncio.sleep(0.3)
    assert items[0].data == b"seen\n"
    policies = kubectl("-n", space, "get", "networkpolicies", "-o", "name")
    assert f"sandbox-console-{name}" in policies
    await backend.remove(await permit("remove"), ref, force=True)


async def test_one_without_rights_is_told_which(space, tmp_path):
    file = Path(os.environ["KUBECONFIG"] + ".viewer")
    backend = KubernetesBackend(Scope("test", space, kubeconfig=file), tmp_path / "state")
    await backend.open()
    try:
        assert "create pods/exec" in backend.capabilities().reason(Capability.SHELL)
        with pytest.raises(BackendUnreachable, match=r"list sandboxes\.agents\.x-k8s\.io"):
            await backend.list()
    finally:
        await backend.close()
