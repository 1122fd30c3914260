"""What is told of one container beside its state: facts, ends, OOM kills, makers."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing

import pytest
from tests.support.engine import IMAGE, until
from tests.support.require import requires

from sandbox_console.backends.common.backoff import FIRST_S, LASTED_S, MOST_S, Backoff
from sandbox_console.backends.docker.container_facts import image_facts, network_facts, state_facts
from sandbox_console.backends.docker.diagnosis import look
from sandbox_console.backends.docker.translate import from_inspect, maker
from sandbox_console.model.event import Changed, Listed
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.secret import shown_value
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.text import clean

WAIT_S = 30


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("PATH", "/bin", "/bin"),
        ("DB_PASSWORD", "x", "***"),
        ("github_token", "x", "***"),
        ("AWS_SECRET_ACCESS_KEY", "x", "***"),
        ("API_KEY", "", ""),
        ("DATABASE", "postgres://bob:hunter2@db.example.com/x", "postgres://bob:***@db.example.com/x"),
        ("URL", "https://example.com/a:b@c", "https://example.com/a:b@c"),
    ],
)
def test_a_variable_that_sounds_like_a_secret_is_masked(name, value, shown):
    assert shown_value(name, value) == shown


def test_health_restarts_ports_and_networks_are_told():
    data = {
        "State": {"Health": {"Status": "unhealthy", "FailingStreak": 3, "Log": [{"Output": "no route\n"}]}},
        "HostConfig": {"RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 5}},
        "RestartCount": 2,
        "NetworkSettings": {
            "Networks": {"shop": {"IPAddress": "172.18.0.2", "Gateway": "172.18.0.1"}, "none": {}},
            "Ports": {
                "80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8080"}, {"HostIp": "::1", "HostPort": "1"}],
                "9/udp": None,
            },
        },
    }
    facts = {fact.field: fact for fact in (*state_facts(data), *network_facts(data))}
    assert (facts["health"].value, facts["health"].note) == ("unhealthy", "failed 3 in a row: no route")
    assert (facts["restarts"].value, facts["restarts"].note) == ("2", "policy on-failure, 5 at most")
    assert (facts["network shop"].value, facts["network shop"].note) == ("172.18.0.2", "gateway 172.18.0.1")
    port = facts["port 80/tcp"]
    assert (port.value, port.note) == ("0.0.0.0:8080, [::1]:1", "other machines can reach it")
    assert facts["port 9/udp"].value == "not published"
    assert "network none" not in facts


def test_an_images_digest_and_age_are_told():
    data = {"Config": {"Image": "a:1"}, "Image": "sha256:1"}
    old = time.strftime("%Y-%m-%dT%H:%M:%S.123456789Z", time.gmtime(time.time() - 3.5 * 86400))
    image = {"RepoDigests": ["a@sha256:2"], "Created": old}
    facts = {fact.field: fact for fact in image_facts(data, image)}
    assert (facts["image"].note, facts["image.digest"].value, facts["image.made"].note) == (
        "sha256:1",
        "sha256:2",
        "3 days old",
    )
    for created in ("1970-01-01T00:00:00Z", "", None, "nonsense"):
        assert [fact.field for fact in image_facts(data, {"Created": created})] == ["image"]


@pytest.mark.parametrize(
    ("name", "command", "labels", "who"),
    [
        ("x", "", {"com.docker.compose.project": "shop"}, "compose:shop"),
        ("x", "", {"com.docker.compose.project": "inspect-abc"}, "Inspect"),
        ("x", "", {"org.testcontainers": "true"}, "testcontainers"),
        ("x", "", {"opensandbox.io/id": "1"}, "OpenSandbox"),
        ("x", "", {"devcontainer.config_file": "/x"}, "devcontainer"),
        ("openhands-runtime-1", "", {}, "OpenHands"),
        ("x", "/root/python/bin/swerex-remote --auth-token ***", {}, "SWE-ReX"),
        ("x", "sh", {}, ""),
    ],
)
def test_makers_are_known(name, command, labels, who):
    assert maker(name, command, labels) == who


def inspected(code, *, oom, running=False):
    state = {"Status": "running" if running else "exited", "Running": running, "ExitCode": code, "OOMKilled": oom,
             "StartedAt": "2026-01-02T03:04:05Z", "FinishedAt": "2026-01-02T03:05:05Z", "Error": ""}  # fmt: skip
    return {"Id": "a", "Name": "/a", "State": state, "Config": {}, "HostConfig": {}}


def test_an_oom_kill_is_told_by_its_event_and_never_by_137():
    started = 1767323045.0
    killed = from_inspect("c", inspected(137, oom=False), {}).exit
    assert (killed.oom, killed.signal, killed.reason) == (False, 9, "")
    assert from_inspect("c", inspected(137, oom=True), {}).exit.reason == "out of memory"
    by_event = from_inspect("c", inspected(137, oom=False), {}, oom_at=started + 1).exit
    assert (by_event.oom, by_event.reason) == (True, "out of memory")
    assert from_inspect("c", inspected(137, oom=False), {}, oom_at=started - 1).exit.oom is False  # of an earlier run
    child = from_inspect("c", inspected(0, oom=True), {}).exit
    assert (child.oom, child.code, child.reason) == (True, 0, "a process of it was killed for lack of memory")
    alive = from_inspect("c", inspected(0, oom=False, running=True), {}, oom_at=started + 1)
    assert (alive.exit, alive.detail) == (None, "a process in it was killed for lack of memory")


async def test_only_a_connection_that_lasted_starts_the_back_off_anew(monkeypatch):
    slept, clock = [], [0.0]

    async def sleep(seconds):
        slept.append(seconds)

    monkeypatch.setattr("sandbox_console.backends.common.backoff.asyncio.sleep", sleep)
    monkeypatch.setattr("sandbox_console.backends.common.backoff.time.monotonic", lambda: clock[0])
    backoff = Backoff()
    for _ in range(8):
        backoff.begin()
        clock[0] += LASTED_S / 2  # it connected, and had its first event, and broke
        await backoff.wait()
    assert slept[:3] == [FIRST_S, FIRST_S * 2, FIRST_S * 4]
    assert slept[-1] == MOST_S
    backoff.begin()
    clock[0] += LASTED_S + 1
    await backoff.wait()
    assert slept[-1] == FIRST_S


@requires("docker")
async def test_a_sandbox_tells_its_image_variables_and_restarts(backend, docker_engine, unique):
    name = unique()
    docker_engine.docker("run", "-d", "--name", name, "--network", "none", "--restart", "on-failure:2", "-e", "TOKEN=canary",
                         "--health-cmd", "[ ! -e /sick ] || { echo sick; false; }", "--health-interval", "1s", "--health-retries", "1",
                         IMAGE, "sh", "-c", "[ -e /x ] || { touch /x; exit 1; }; sleep 1000")  # fmt: skip
    try:
        ref = SandboxRef("docker", "default", docker_engine.inspect(name)["Id"])
        told = "{{.RestartCount}} {{.State.Status}}"
        until(lambda: docker_engine.docker("inspect", "-f", told, name) == "1 running", WAIT_S, "not started again")
        async with asyncio.timeout(WAIT_S), aclosing(backend.watch()) as events:
            async for event in events:
                if isinstance(event, Listed):  # the row follows: sick only from now on
                    docker_engine.docker("exec", name, "touch", "/sick")
                if isinstance(event, Changed) and event.sandbox.ref == ref and event.sandbox.detail == "unhealthy":
                    break
        assert next(row.detail for row in await backend.list() if row.ref == ref) == "unhealthy"
        found = await backend.inspect(ref)
        facts = {fact.field: fact for fact in found.effective}
        assert found.restarts == 1
        assert facts["restarts"].value == "1"
        assert facts["health"].value == "unhealthy"
        assert "sick" in facts["health"].note
        assert facts["env TOKEN"].value == "***"
        assert facts["image.made"].note == "today"
    finally:
        docker_engine.docker("rm", "-f", name)


@requires("docker")
async def test_a_commands_oom_kill_is_seen_while_the_sandbox_lives(backend, make, permit):
    from tests.docker.conftest import collect

    from sandbox_console.model.action import Exec

    ref = await make(memory_mib=16)
    seen = asyncio.Event()

    async def watch():
        async for event in backend.watch():
            if isinstance(event, Changed) and event.sandbox.ref == ref and "lack of memory" in event.sandbox.detail:
                seen.set()

    watching = asyncio.ensure_future(watch())
    try:
        async with asyncio.timeout(WAIT_S):
            while not seen.is_set():
                _, _, end = await collect(
                    await backend.exec(await permit("exec"), Exec(ref, ("tail", "/dev/zero")), ())
                )
                assert end.code == 137
                await asyncio.sleep(0.3)
        assert (await backend.inspect(ref)).status is Status.RUNNING
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


@requires("docker")
async def test_many_of_ours_are_listed_at_once_and_in_detail_after(backend, make, monkeypatch):
    monkeypatch.setattr("sandbox_console.backends.docker.listing.SOON", 1)
    refs = {await make(start=False) for _ in range(3)}
    listed = []
    async for event in backend.watch():
        listed.append({row.ref: row for row in getattr(event, "sandboxes", ()) if row.ref in refs})
        if len(listed) == 3:
            break
    health, early, late = listed
    assert not health
    assert early.keys() == late.keys() == refs
    assert not any(row.effective for row in early.values())
    assert all(row.effective for row in late.values())
    assert all(early[ref].spec == late[ref].spec for ref in refs)


async def test_a_doctor_is_told_what_decides_the_walls(backend, docker_engine):
    told = {one.what: one for one in await backend.diagnose()}
    info = json.loads(docker_engine.docker("info", "--format", "{{json .}}"))
    assert info["KernelVersion"] in told["engine"].text
    for runtime in info["Runtimes"]:
        assert runtime in told["runtimes"].text
    assert (told["security"].state, "seccomp" in told["security"].text) == ("ok", True)
    assert (told["egress"].state, "state folder" in told["egress"].text) == ("warning", True)
    assert [one.text for one in told.values()] == [clean(one.text) for one in told.values()]


def test_an_engine_without_seccomp_is_a_warning():
    told = {one.what: one for one in look({"SecurityOptions": ["name=apparmor"], "Warnings": ["WARNING: no swap"]}, "")}
    assert (told["security"].state, told["security"].text) == ("warning", "no seccomp; apparmor")
    assert (told["warning"].text, told["egress"].state) == ("no swap", "ok")


async def test_a_runtime_of_the_engines_list_is_used_and_another_is_refused(backend, docker_engine, make):
    runtimes = json.loads(docker_engine.docker("info", "--format", "{{json .Runtimes}}"))
    for runtime in runtimes:
        ref = await make(runtime=runtime)
        assert docker_engine.inspect(ref.id)["HostConfig"]["Runtime"] == runtime
    problem = backend.validate(SandboxSpec("x", IMAGE, ("true",), runtime="kata"))["runtime"]
    assert all(runtime in problem for runtime in runtimes)
