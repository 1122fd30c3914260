"""What a container does and is, beside its list row: processes, diff, inspect, events, its own streams, its image."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.docker.conftest import collect
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.backends.docker.attach import KEPT
from sandbox_console.errors import Conflict, NotFound, Unsupported, UsageError
from sandbox_console.model.action import Exec
from sandbox_console.model.capability import Capability
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.secret import ResolvedSecret

pytestmark = requires("docker")

NOWHERE = SandboxRef("docker", "default", "0" * 64)
WAIT_S = 30


async def run(backend, permit, ref, *argv):
    return await collect(await backend.exec(await permit("exec"), Exec(ref, argv), ()))


async def holds(look):
    async with asyncio.timeout(WAIT_S):
        while not await look():
            await asyncio.sleep(0.05)


def test_the_abilities_are_told(backend):
    able = backend.capabilities()
    for one in ("COPY", "PROCESSES", "DIFF", "RAW", "EVENTS", "ATTACH", "COMMIT", "IMAGES", "IMAGE_FILES", "RENAME"):
        assert able.has(Capability[one])
    assert "commit" in able.reason(Capability.SNAPSHOT)
    assert able.reason(Capability.FORK)


async def test_processes_are_told_by_their_own_pids(backend, make, permit):
    ref = await make("sh", "-c", "sleep 1234 & wait")

    async def all_there():
        return len(await backend.processes(ref)) >= 3

    await holds(all_there)
    rows = {row.command: row for row in await backend.processes(ref)}
    main, sleep = next(row for words, row in rows.items() if words.startswith("/sbin/docker-init")), rows["sleep 1234"]
    assert (main.pid, main.parent, sleep.user) == (1, 0, "1000")
    out, _, _ = await run(backend, permit, ref, "pidof", "sleep")
    assert int(out) == sleep.pid
    assert sleep.memory_bytes > 0
    assert sleep.cpu_s is not None
    await backend.kill(await permit("kill"), ref, "SIGKILL")
    with pytest.raises(Conflict):
        await backend.processes(ref)
    with pytest.raises(NotFound):
        await backend.processes(NOWHERE)


async def test_changes_are_told(backend, make, permit):
    ref = await make(user="0")
    await run(backend, permit, ref, "sh", "-c", "echo x > /etc/new; echo y > /etc/group; rm /etc/passwd")
    found = {change.path: change.how for change in await backend.changes(ref)}
    assert (found["/etc/new"], found["/etc/group"], found["/etc/passwd"]) == ("added", "changed", "deleted")
    with pytest.raises(NotFound):
        await backend.changes(NOWHERE)


async def test_the_raw_account_has_no_value_of_a_variable(backend, make, docker_engine, unique):
    secret = ResolvedSecret("TOKEN", "canary-value-1234")
    ref = await make(env={"PLAIN": "canary-plain"}, secrets=[secret], start=False)
    found = await backend.raw(ref)
    assert found["Id"] == ref.id
    assert "canary" not in json.dumps(found)
    assert "PLAIN=***" in found["Config"]["Env"]
    name = unique()
    docker_engine.docker("create", "--name", name, "--network", "none", "-e", "OTHER=canary-other",
                         "--label", "sandbox-console.spec=canary{", IMAGE, "true")  # fmt: skip
    try:
        theirs = SandboxRef("docker", "default", docker_engine.inspect(name)["Id"])
        assert "canary" not in json.dumps(await backend.raw(theirs))
    finally:
        docker_engine.docker("rm", name)


async def test_what_happened_is_told_without_what_we_did_for_ourselves(backend, make, permit):
    ref = await make()
    await backend.list_dir(ref, "/tmp")
    await run(backend, permit, ref, "sh", "-c", "exit 7")
    await backend.kill(await permit("kill"), ref, "SIGKILL")

    async def died():
        return any([one.what == "die" async for one in backend.guest_events(ref, since=None, follow=False)])

    await holds(died)
    found = [one async for one in backend.guest_events(ref, since=None, follow=False)]
    words = [one.what for one in found]
    assert words[0] == "create"
    for what in ("start", "exec_create", "exec_start", "kill", "die"):
        assert words.count(what) == 1, words
    assert next(one.attributes["exitCode"] for one in found if one.what == "die") == "137"
    assert next(one.detail for one in found if one.what == "exec_create") == "sh -c exit 7"
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert not any("sandbox-console-helper" in json.dumps([one.detail, dict(one.attributes)]) for one in found)
    later = next(one.at for one in found if one.what == "die")
    assert (await anext(backend.guest_events(ref, since=later - 0.0001, follow=False))).what == "die"
    with pytest.raises(NotFound):
        [one async for one in backend.guest_events(NOWHERE, since=None, follow=False)]


async def test_happenings_are_followed_to_the_end(backend, make, permit):
    ref = await make()
    following = backend.guest_events(ref, since=None, follow=True)
    assert (await anext(following)).what == "create"
    await backend.remove(await permit("remove"), ref, force=True)
    async with asyncio.timeout(WAIT_S):
        assert [one.what async for one in following][-1] == "destroy"


async def test_attaching_shows_what_comes_and_leaving_ends_nothing(backend, make, permit):
    ref = await make("sh", "-c", "while :; do echo out; echo err >&2; sleep 0.1; done")
    process = await backend.attach(await permit("attach"), ref)
    seen = {}
    async with asyncio.timeout(WAIT_S):
        async for stream, data in process.output():
            seen.setdefault(stream, data)
            if len(seen) == 2:
                break
    assert (seen[Stream.STDOUT][:4], seen[Stream.STDERR][:4]) == (b"out\n", b"err\n")
    await process.kill()
    await process.kill()
    assert (await process.wait()).code is None
    assert (await backend.inspect(ref)).status is Status.RUNNING


async def test_an_attached_reader_that_stalls_does_not_hold_the_sandbox(backend, make, permit):
    script = "while [ ! -e /tmp/go ]; do sleep 0.05; done; head -c 20000000 /dev/zero | tr '\\0' x; echo; touch /tmp/done; sleep 500"
    ref = await make("sh", "-c", script)
    process = await backend.attach(await permit("attach"), ref)
    await run(backend, permit, ref, "touch", "/tmp/go")

    async def written():
        return (await run(backend, permit, ref, "test", "-e", "/tmp/done"))[2].code == 0

    await holds(written)  # though nobody read
    await backend.kill(await permit("kill"), ref, "SIGKILL")
    out, err, end = await collect(process)
    assert end.code == 137
    assert len(out) <= KEPT + 65536
    assert b"were not read in time" in err
    await process.kill()


async def test_an_attached_end_is_told(backend, make, permit):
    ref = await make("sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; exit 3")
    process = await backend.attach(await permit("attach"), ref)
    await run(backend, permit, ref, "touch", "/tmp/go")
    async with asyncio.timeout(WAIT_S):
        assert (await collect(process))[2].code == 3
    await process.kill()
    with pytest.raises(Conflict, match="is not running"):
        await backend.attach(await permit("attach"), ref)
    with pytest.raises(NotFound):
        await backend.attach(await permit("attach"), NOWHERE)


@pytest.mark.parametrize("flags", [("-i",), ("-i", "-t")])
async def test_input_reaches_a_process_that_takes_it_and_leaving_leaves_it_open(
    backend, docker_engine, permit, unique, flags
):
    name = unique()
    docker_engine.docker("run", "-d", *flags, "--name", name, "--network", "none", IMAGE, "cat")
    try:
        ref = SandboxRef("docker", "default", docker_engine.inspect(name)["Id"])
        for word in (b"one\n", b"two\n"):
            process = await backend.attach(await permit("attach"), ref)
            await process.write(word)
            async with asyncio.timeout(WAIT_S):
                async for _, data in process.output():
                    if word.strip() in data:
                        break
            await process.close_stdin()
            await process.kill()
        assert (await backend.inspect(ref)).status is Status.RUNNING
    finally:
        docker_engine.docker("rm", "-f", name)


async def test_leaving_does_not_close_a_stdin_that_ends_with_its_first_client(backend, docker_engine, permit, unique):
    name = unique()
    docker_engine.docker("create", "-i", "--name", name, "--network", "none", IMAGE, "cat")  # StdinOnce
    docker_engine.docker("start", name)
    try:
        ref = SandboxRef("docker", "default", docker_engine.inspect(name)["Id"])
        assert docker_engine.inspect(name)["Config"]["StdinOnce"] is True
        process = await backend.attach(await permit("attach"), ref)
        await process.write(b"dropped\n")
        await process.kill()
        assert (await run(backend, permit, ref, "true"))[2].code == 0
        assert (await backend.inspect(ref)).status is Status.RUNNING
    finally:
        docker_engine.docker("rm", "-f", name)


async def test_a_committed_image_has_the_files_and_no_secret(backend, make, permit, docker_engine, unique):
    secrets = [ResolvedSecret("TOKEN", "canary-env-value"), ResolvedSecret("FILE", "canary-file-value", inject="file")]
    ref = await make("sh", "-c", "cat /run/secrets/FILE >/dev/null; sleep 1000", secrets=secrets,
                     env={"PLAIN": "plain"})  # fmt: skip
    await run(backend, permit, ref, "sh", "-c", "echo kept > /home/user/file")
    image = f"{unique()}:1"
    made = await backend.commit(await permit("commit"), ref, image)
    try:
        found = json.loads(docker_engine.docker("image", "inspect", image))[0]
        assert found["Id"] == made
        assert "canary" not in json.dumps(found)
        assert "PLAIN=plain" in found["Config"]["Env"]
        assert found["Config"]["Cmd"] == ["sh", "-c", "cat /run/secrets/FILE >/dev/null; sleep 1000"]
        assert not found["Config"]["Entrypoint"]
        assert not any(found["Config"]["Labels"].values())
        data = b"".join([chunk async for chunk in backend.save_image(await permit("save-image"), image)])
        assert b"canary" not in data
        # Made from it, a container is not taken for one of the console's.
        docker_engine.docker("create", "--name", image[:-2], "--network", "none", image, "cat", "/home/user/file")
        row = next(row for row in await backend.list() if row.name == image[:-2])
        assert (row.managed, row.spec) == (False, None)
        assert docker_engine.docker("start", "-a", image[:-2]) == "kept"
    finally:
        docker_engine.docker("rm", "-f", image[:-2])
        docker_engine.docker("rmi", "-f", image)


async def test_a_commit_that_cannot_be_is_said(backend, make, permit):
    ref = await make(start=False, env={"DB_PASSWORD": "canary"})
    with pytest.raises(Unsupported, match="'DB_PASSWORD' looks like a secret's") as caught:
        await backend.commit(await permit("commit"), ref, "x:1")
    assert "canary" not in caught.value.message
    with pytest.raises(UsageError, match="not an image's name"):
        await backend.commit(await permit("commit"), ref, "Not A Name")
    with pytest.raises(NotFound):
        await backend.commit(await permit("commit"), NOWHERE, "x:1")
