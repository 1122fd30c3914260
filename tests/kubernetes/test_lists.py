"""Lists, watches, rights and logins against recorded answers of a real API server."""

from __future__ import annotations

import asyncio
import copy
import os
from contextlib import aclosing

import pytest
from tests.kubernetes.recorded import recording

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.kubernetes import KubernetesProvider
from sandbox_console.errors import BackendUnreachable, ConfigError, NotFound
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.model.capability import Capability
from sandbox_console.model.event import Changed, HealthChanged, Listed, Removed
from sandbox_console.model.sandbox import HealthState, SandboxRef, Status

BOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes"
PODS = "/api/v1/namespaces/default/pods"


async def test_a_sandbox_has_the_state_of_its_pod(make):
    backend = await make()
    rows = await backend.list()
    assert [(one.name, one.status, one.ref.host) for one in rows] == [
        ("box-00000", Status.RUNNING, "rec"),
        ("box-00001", Status.RUNNING, "rec"),
    ]
    facts = {fact.field: fact.value for fact in rows[0].effective}
    assert (facts["kind"], facts["cpus"], facts["memory_mib"], facts["node"]) == ("Sandbox", "0.05", "32", "node1")


async def test_pods_are_shown_only_by_selector(make, server):
    server.answers[PODS] = recording("pods") | {
        "items": recording("pods")["items"] + recording("sandbox-pods")["items"]
    }
    names = {one.name for one in await (await make()).list()}
    chosen = {one.name for one in await (await make(selector="run=causes")).list()}
    assert names == {"box-00000", "box-00001"}
    assert chosen == names | {"badinit", "crash", "done", "evicted", "noimage", "oom", "toolarge", "two"}


async def test_a_list_in_pages_is_whole(make, server):
    whole = recording("sandboxes")
    first, second = copy.deepcopy(whole), copy.deepcopy(whole)
    first["items"], second["items"] = whole["items"][:1], whole["items"][1:]
    first["metadata"]["continue"] = "page/2=+"

    server.answers[BOXES] = lambda request: second if request.query.get("continue") == "page/2=+" else first
    assert [one.name for one in await (await make()).list()] == ["box-00000", "box-00001"]


async def until(events, fits):
    async with asyncio.timeout(20):
        async for event in events:
            if fits(event):
                return event
    raise AssertionError("the watch ended")


async def test_a_change_of_a_pod_is_one_of_its_sandbox_and_410_lists_again(make, server):
    backend = await make()
    async with aclosing(backend.watch()) as events:
        health = await anext(events)
        assert isinstance(health, HealthChanged)
        assert health.health.ok
        listed = await anext(events)
        assert isinstance(listed, Listed)
        pod = copy.deepcopy(recording("sandbox-pods")["items"][0])
        pod["metadata"]["resourceVersion"] = "999001"
        pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 7, "reason": "Error"}}
        reading = asyncio.ensure_future(until(events, lambda event: isinstance(event, Changed)))
        while PODS not in server.events or BOXES not in server.events:
            await asyncio.sleep(0.01)
        server.events[PODS].put_nowait({"type": "MODIFIED", "object": pod})
        changed = (await reading).sandbox
        assert (changed.name, changed.status, changed.exit.code) == ("box-00000", Status.EXITED, 7)
        # a bookmark moves the version on, also over the end of a watch
        mark = {"kind": "Pod", "metadata": {"resourceVersion": "999777"}}
        server.events[PODS].put_nowait({"type": "BOOKMARK", "object": mark})
        server.events[PODS].put_nowait(None)
        reading = asyncio.ensure_future(until(events, lambda event: isinstance(event, (Removed, Listed))))
        while not any("watch=1" in line and "resourceVersion=999777" in line for line in server.asked):
            await asyncio.sleep(0.01)
        server.answers[BOXES] = recording("sandboxes") | {"items": recording("sandboxes")["items"][1:]}
        gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        server.events[PODS].put_nowait({"type": "ERROR", "object": gone})
        again = await reading
        assert isinstance(again, Listed)
        assert [one.name for one in again.sandboxes] == ["box-00001"]


async def test_a_deleted_sandbox_is_removed_even_if_its_pod_ends_later(make, server):
    backend = await make()
    box, pod = recording("sandboxes")["items"][0], recording("sandbox-pods")["items"][0]
    async with aclosing(backend.watch()) as events:
        await anext(events)
        await anext(events)
        reading = asyncio.ensure_future(until(events, lambda event: isinstance(event, Removed)))
        while BOXES not in server.events or PODS not in server.events:
            await asyncio.sleep(0.01)
        server.events[BOXES].put_nowait({"type": "DELETED", "object": box})
        assert (await reading).ref.id == box["metadata"]["uid"]
        reading = asyncio.ensure_future(until(events, lambda event: True))
        server.events[PODS].put_nowait({"type": "MODIFIED", "object": pod})
        assert isinstance(await reading, Removed)


async def test_another_of_its_name_is_another_sandbox(make, server):
    backend = await make()
    [ref, _] = [one.ref for one in await backend.list()]
    other = copy.deepcopy(recording("sandboxes")["items"][0])
    server.answers[f"{BOXES}/box-00000"] = other
    assert (await backend.inspect(ref)).name == "box-00000"
    other["metadata"]["uid"] = "another"
    with pytest.raises(NotFound, match="another one has its name"):
        await backend.inspect(ref)
    with pytest.raises(NotFound):
        await backend.inspect(SandboxRef("kubernetes", "rec", "unknown"))


async def test_what_rbac_forbids_is_named_with_its_verb_and_resource(make, server):
    server.denied = {"list events"}
    server.forbidden = {BOXES}
    backend = await make()
    assert not backend.capabilities().has(Capability.EVENTS)
    assert "list events" in backend.capabilities().reason(Capability.EVENTS)
    with pytest.raises(BackendUnreachable, match=r"list sandboxes.agents.x-k8s.io in default: the cluster forbids it"):
        await backend.list()
    told = {one.what: one for one in await backend.diagnose()}
    assert told["rbac"].state == "warning"
    assert "list events" in told["rbac"].text


async def test_rights_that_are_told_late_count_all_the_same(make, server, monkeypatch):
    """A busy server, or one that was down when the console was opened."""
    monkeypatch.setattr("sandbox_console.backends.kubernetes.backend.OPEN_S", 0.05)
    server.denied = {"create pods"}
    server.reviewed.clear()
    busy = await make()
    assert busy.capabilities().has(Capability.SHELL)
    server.reviewed.set()
    url, server.url = server.url, "http://127.0.0.1:9"
    late = await make()
    server.url = url
    server.kubeconfig(late._cluster.scope.kubeconfig)
    await late.close()  # so that it reads the kubeconfig again
    assert (await late.health()).ok
    async with asyncio.timeout(10):
        while busy.capabilities().has(Capability.SHELL) or late.capabilities().has(Capability.SHELL):
            await asyncio.sleep(0.01)
    assert "create pods/exec" in late.capabilities().reason(Capability.SHELL)


async def test_without_agent_sandbox_and_selector_there_is_nothing_to_show(make, server):
    del server.answers["/apis/agents.x-k8s.io/v1beta1"], server.answers[BOXES]
    health = await (await make()).health()
    assert health.state is HealthState.UNAVAILABLE
    assert "agent-sandbox is not installed" in health.reason
    server.answers[PODS] = recording("pods")
    chosen = await make(selector="run=causes")
    assert (await chosen.health()).ok
    assert len(await chosen.list()) == 8


async def test_a_dead_server_is_unreachable_and_its_token_is_never_shown(make, server):
    server.url = "http://127.0.0.1:9"
    backend = await make()
    health = await backend.health()
    with pytest.raises(BackendUnreachable) as caught:
        await backend.list()
    assert health.state is HealthState.UNREACHABLE
    assert "t0ken-value" not in f"{health} {caught.value} {caught.value.hint}"


async def test_the_login_is_sent_and_a_program_of_the_kubeconfig_is_run(make, server, tmp_path):
    await (await make()).list()
    assert server.tokens == {"Bearer t0ken-value"}
    server.tokens.clear()
    program = tmp_path / "login"
    program.write_text(
        "#!/bin/sh\n"
        'echo \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"by-program"}}\'\n'
    )
    program.chmod(0o700)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}}
    await (await make(user)).list()
    assert server.tokens == {"Bearer by-program"}


async def test_a_kubeconfig_that_others_could_write_runs_nothing(server, make, tmp_path):
    ran = tmp_path / "ran"
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(ran)]}}
    backend = await make(user)
    assert ran.exists()  # it is run where the file is the user's own; what it wrote is no token
    assert not (await backend.health()).ok
    ran.unlink()
    (tmp_path / "kubeconfig").chmod(0o666)
    health = await backend.health()
    assert health.state is HealthState.UNAVAILABLE
    assert "every user may write" in health.reason
    assert not ran.exists()


@pytest.mark.parametrize("name", ["ws/kubeconfig", "ws/link", "own/link"])
async def test_a_kubeconfig_that_a_guest_could_write_runs_nothing(server, tmp_path, monkeypatch, name):
    """An ordinary user's guest has the user's uid, so the owner of the file proves nothing."""
    ran = tmp_path / "ran"
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch", "args": [str(ran)]}}
    (tmp_path / "ws").mkdir()
    (tmp_path / "own").mkdir()
    server.kubeconfig(tmp_path / "ws/kubeconfig", user)
    server.kubeconfig(tmp_path / "own/kubeconfig", user)
    (tmp_path / "ws/link").symlink_to(tmp_path / "own/kubeconfig")
    (tmp_path / "own/link").symlink_to(tmp_path / "ws/kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / name))
    settings = BackendSettings(
        tmp_path / "state", {"contexts": ["rec"]}, guests=lambda: GuestFolders.of([str(tmp_path / "ws")])
    )
    [backend] = KubernetesProvider.backends(settings)
    health = await backend.health()
    await backend.close()
    assert health.state is HealthState.UNAVAILABLE
    assert "which a sandbox can write" in health.reason
    assert not ran.exists()


@pytest.mark.parametrize(
    "key", ["command", "relative", "linked", "certificate-authority", "client-key", "tokenFile", "cmd-path"]
)
async def test_what_a_kubeconfig_names_is_not_a_guests(server, tmp_path, monkeypatch, key):
    """The kubeconfig is the operator's own, and yet a guest chose the program, the server's identity or what is sent."""
    for name in ("ws", "own"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "ws/get-token"
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/own/ran\n")
    program.chmod(0o755)
    (tmp_path / "own/get-token").symlink_to(program)
    (tmp_path / "own/secret").write_text("of-the-operator")
    (tmp_path / "ws/tokenFile").symlink_to(tmp_path / "own/secret")
    user = {
        "command": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(program)}},
        "relative": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./ws/get-token"}},
        "linked": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": f"{tmp_path}/own/get-token"}},
        "cmd-path": {"auth-provider": {"name": "gcp", "config": {"cmd-path": str(program), "cmd-args": "x"}}},
    }.get(key, {key: "../ws/tokenFile"})
    file = server.kubeconfig(tmp_path / "own/kubeconfig", {} if key == "certificate-authority" else user)
    if key == "certificate-authority":
        import yaml

        content = yaml.safe_load(file.read_text())
        content["clusters"][0]["cluster"][key] = str(tmp_path / "ws/ca.crt")
        file.write_text(yaml.safe_dump(content))
        (tmp_path / "ws/ca.crt").write_text("")
    settings = BackendSettings(
        tmp_path / "state", {"contexts": ["rec"], "kubeconfig": str(file)},
        guests=lambda: GuestFolders.of([str(tmp_path / "ws")]),
    )  # fmt: skip
    [backend] = KubernetesProvider.backends(settings)
    health = await backend.health()
    await backend.close()
    assert health.state is HealthState.UNAVAILABLE
    assert "which a sandbox can write" in health.reason
    assert "/ws/tokenFile is a link" in health.reason or str(tmp_path / "ws") in health.reason
    assert not (tmp_path / "own/ran").exists()


@pytest.mark.parametrize("content", ["{", "a: [secret-in-file", "users: 3\ncontexts: 4", "- x"])
async def test_a_damaged_kubeconfig_is_told_without_its_content(make, tmp_path, content):
    backend = await make()
    await backend.close()
    (tmp_path / "kubeconfig").write_text(content)
    health = await backend.health()
    assert health.state is HealthState.UNAVAILABLE
    assert "secret-in-file" not in str(health)


async def test_an_unknown_context_names_those_there_are(tmp_path, server):
    file = server.kubeconfig(tmp_path / "kubeconfig")
    [backend] = KubernetesProvider.backends(BackendSettings(tmp_path, {"contexts": ["prod"], "kubeconfig": str(file)}))
    health = await backend.health()
    assert (health.state, health.hint) == (HealthState.UNAVAILABLE, "there is: rec (kubectl config get-contexts)")


def test_it_is_off_until_contexts_are_named(tmp_path):
    assert KubernetesProvider.backends(BackendSettings(tmp_path)) == []
    several = {"contexts": ["a", "b/c"], "namespaces": ["x", "y"]}
    hosts = [one.host for one in KubernetesProvider.backends(BackendSettings(tmp_path, several))]
    assert hosts == ["a/x", "a/y", "b/c/x", "b/c/y"]
    for wrong in (
        {"contexts": "a"},
        {"context": ["a"]},
        {"contexts": ["a"], "namespaces": ["*", "x"]},
        {"contexts": ["a"], "selector": 3},
    ):
        with pytest.raises(ConfigError):
            KubernetesProvider.backends(BackendSettings(tmp_path, wrong))


async def test_in_cluster_needs_a_service_account(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    [backend] = KubernetesProvider.backends(BackendSettings(tmp_path, {"contexts": ["in-cluster"]}))
    health = await backend.health()
    assert "service account" in health.reason
    assert os.environ.get("KUBERNETES_SERVICE_HOST") is None
