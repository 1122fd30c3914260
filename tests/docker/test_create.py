from __future__ import annotations

import asyncio
import os

import pytest
from blockbuster import blockbuster_ctx
from tests.docker.conftest import collect
from tests.support.engine import IMAGE, SHELLLESS, busybox_tree
from tests.support.require import requires

from sandbox_console.errors import BackendError, Conflict, InvalidSpec, NotFound, Unsupported, UsageError
from sandbox_console.model.action import Exec
from sandbox_console.model.capability import Capability
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

pytestmark = requires("docker")


async def sh(backend, permit, ref, script, **fields):
    out, err, end = await collect(
        await backend.exec(await permit("exec"), Exec(ref, ("sh", "-c", script), **fields), ())
    )
    return out.decode(), err.decode(), end.code


async def test_every_wall_is_up_as_seen_from_inside(backend, make, permit):
    ref = await make(memory_mib=64, cpus=0.5, pids=20, read_only_root=True)
    out, _, _ = await sh(
        backend,
        permit,
        ref,
        "id -u; grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr -d ' \t'; ls /sys/class/net;"
        "ulimit -n; ulimit -c; cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null",
    )
    assert out.split() == [
        "1000",
        "CapEff:0000000000000000",
        "CapBnd:0000000000000000",
        "NoNewPrivs:1",
        "Seccomp:2",
        "lo",
        "16384",
        "0",
        str(64 << 20),
    ]
    _, _, code = await sh(backend, permit, ref, "touch /x 2>/dev/null")
    assert code != 0
    out, _, code = await sh(backend, permit, ref, "printf '#!/bin/sh\necho ran' > /tmp/p; chmod +x /tmp/p; /tmp/p")
    assert (out, code) == ("ran\n", 0)
    _, _, code = await sh(backend, permit, ref, "unshare -U true 2>/dev/null || mount -t tmpfs x /mnt 2>/dev/null")
    assert code != 0
    _, err, _ = await sh(backend, permit, ref, "for i in $(seq 40); do sleep 3 & done; wait")
    assert "fork" in err


async def test_what_holds_is_told(backend, make):
    ref = await make(start=False, memory_mib=64, cpus=0.5)
    facts = {fact.field: fact for fact in (await backend.inspect(ref)).effective}
    values = {field: fact.value for field, fact in facts.items()}
    assert facts["image"].note.startswith("sha256:")
    assert values["egress"] == "none"
    assert values["memory_mib"] == "64"
    assert facts["memory_mib"].note == "no swap beyond it"
    assert values["cpus"] == "0.5"
    assert values["pids"] == "256"
    assert values["user"] == "1000:1000"
    assert values["capabilities"] == "none"
    assert values["no_new_privileges"] == "yes"
    assert values["runtime"] == "runc"
    assert values["log"] == "local"
    assert facts["log"].note == "10m x 3"
    for field in (
        "seccomp",
        "ipc",
        "cgroup_namespace",
        "init",
        "oom_score_adj",
        "tmpfs /tmp",
        "tmpfs /run",
        "log_rate",
        "ulimit.nofile",
    ):
        assert field in values


async def test_empty_files_do_not_fill_the_hosts_memory(backend, permit, make):
    ref = await make("sleep", "1000")
    count = "cd /tmp && df -i . | tail -1 | awk '{print $2}'"
    assert (await sh(backend, permit, ref, count))[0].split() == ["65536"]


async def test_the_spec_comes_back_without_a_secret_value(backend, make):
    secret = ResolvedSecret("TOKEN", "canary-value-1234")
    ref = await make(
        "sh", "-c", "true", start=False, secrets=[secret], env={"A": "1"}, workdir="/tmp", labels={"k": "v"}
    )
    found = await backend.inspect(ref)
    assert found.spec.secrets == ("TOKEN",)
    assert found.spec.env == {"A": "1"}
    assert found.spec.command == ("sh", "-c", "true")
    assert {fact.field: fact.value for fact in found.effective}["command"] == "sh -c true"
    assert found.labels == {"k": "v"}


async def test_a_workspace_is_shared_and_written_as_its_owner(backend, make, permit, tmp_path):
    folder = tmp_path / "space"
    folder.mkdir()
    os.chown(folder, 1234, 1234)
    ref = await make(workspace=str(folder))
    out, _, code = await sh(backend, permit, ref, "pwd; id -u; echo hello > /workspace/file")
    assert (out, code) == ("/workspace\n1234\n", 0)
    assert (folder / "file").read_text() == "hello\n"
    assert (folder / "file").stat().st_uid == 1234
    fact = next(fact for fact in (await backend.inspect(ref)).effective if fact.field == "workspace")
    assert "any size and number of files" in fact.note


async def test_a_workspace_that_the_user_cannot_write_is_said(backend, make, tmp_path):
    folder = tmp_path / "space"
    folder.mkdir(mode=0o755)
    ref = await make(start=False, workspace=str(folder))
    fact = next(fact for fact in (await backend.inspect(ref)).effective if fact.field == "workspace")
    assert fact.value == str(folder)
    assert "uid 1000 of the sandbox cannot write it" in fact.note


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"image": ""}, "image", "an image is needed"),
        ({"image": "nobody/nothing:1"}, "image", "is not on this engine"),
        ({"image": "../../version"}, "image", "not an image's name"),
        ({"image": "a?b=c"}, "image", "not an image's name"),
        ({"image": "a//b"}, "image", "not an image's name"),
        ({"image": "Upper/case"}, "image", "not an image's name"),
        ({"cpus": 4000}, "cpus", "above the engine's"),
        ({"memory_mib": 1 << 30}, "memory_mib", "above the engine's"),
        ({"memory_mib": 4}, "memory_mib", "6 MiB"),
        ({"workspace": "/nonexistent/folder"}, "workspace", "does not exist"),
        ({"workspace": "/etc/passwd"}, "workspace", "not a folder"),
        ({"workspace": "/proc/self/root"}, "workspace", "this whole host"),
        ({"runtime": "gvisor"}, "runtime", "runc"),
        ({"name": "x"}, "name", "two characters"),
    ],
)
async def test_bad_values_are_refused_by_field(backend, permit, unique, fields, field, words):
    spec = SandboxSpec(**{"name": unique(), "image": IMAGE, "command": ("true",), **fields})
    with pytest.raises(InvalidSpec) as caught:
        await backend.create(await permit("create"), spec, (), lambda _: None)
    assert words in caught.value.problems[field]
    assert spec.name not in {row.name for row in await backend.list()}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"egress": ("example.com",)}, "egress gateway"),
        ({"max_duration_s": 5.0}, "max_duration_s"),
        ({"idle_timeout_s": 5.0}, "idle_timeout_s"),
    ],
)
async def test_what_nothing_enforces_is_unsupported(backend, permit, unique, fields, words):
    spec = SandboxSpec(name=unique(), image=IMAGE, **fields)
    with pytest.raises(Unsupported, match=words):
        await backend.create(await permit("create"), spec, (), lambda _: None)
    assert spec.name not in {row.name for row in await backend.list()}


async def test_capabilities_name_what_is_missing_and_why(backend):
    able = backend.capabilities()
    assert able.has(Capability.LIMIT_MEMORY)
    assert able.has(Capability.SECRET_FILE)
    assert not able.has(Capability.MAX_DURATION)
    assert "enforces" in able.reason(Capability.MAX_DURATION)
    assert "gateway" in able.reason(Capability.EGRESS_ALLOWLIST)


async def test_a_taken_name_is_a_conflict(backend, make, permit, unique):
    name = unique()
    await make(start=False, name=name)
    with pytest.raises(Conflict, match=name):
        await backend.create(await permit("create"), SandboxSpec(name=name, image=IMAGE), (), lambda _: None)


async def test_secrets_need_a_shell_and_leave_nothing_behind(backend, permit, unique):
    spec = SandboxSpec(name=unique(), image=SHELLLESS, secrets=("TOKEN",))
    with pytest.raises(Unsupported, match="/bin/sh"):
        await backend.create(await permit("create"), spec, [ResolvedSecret("TOKEN", "x" * 12)], lambda _: None)
    assert spec.name not in {row.name for row in await backend.list()}


async def test_a_command_that_is_not_there_fails_the_start(backend, make, permit):
    ref = await make("nonexistent-program", start=False)
    with pytest.raises(BackendError, match="cannot start") as caught:
        await backend.start(await permit("start"), ref, ())
    assert "nonexistent-program" in caught.value.message
    assert not (await backend.inspect(ref)).status.live


async def test_live_limits_change_and_labels_do_not(backend, make, permit):
    ref = await make(memory_mib=64, cpus=0.5)
    spec = SandboxSpec(name="x", image=IMAGE, memory_mib=128, cpus=1.0, pids=33)
    await backend.update(await permit("update"), ref, spec)
    found = await backend.inspect(ref)
    assert (found.spec.memory_mib, found.spec.cpus, found.spec.pids) == (128, 1.0, 33)
    out, _, _ = await sh(
        backend, permit, ref, "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null"
    )
    assert int(out) == 128 << 20
    with pytest.raises(Unsupported, match="memory_mib"):
        await backend.update(await permit("update"), ref, SandboxSpec(name="x", image=IMAGE))


async def test_pause_resume_and_rename(backend, make, permit, unique):
    ref = await make()
    await backend.pause(await permit("pause"), ref)
    assert (await backend.inspect(ref)).status is Status.PAUSED
    with pytest.raises(Conflict):
        await backend.exec(await permit("exec"), Exec(ref, ("true",)), ())
    await backend.resume(await permit("resume"), ref)
    with pytest.raises(Conflict, match="is not paused"):
        await backend.resume(await permit("resume"), ref)
    name = unique()
    await backend.rename(await permit("rename"), ref, name)
    found = await backend.inspect(ref)
    assert (found.name, found.spec.name, found.status) == (name, name, Status.RUNNING)


async def said(backend, ref, words):
    async with asyncio.timeout(60):
        async for batch in backend.logs(ref, LogQuery(follow=True)):
            if any(words in item.data for item in batch):
                return


async def test_stop_kills_what_ignores_the_signal(backend, make, permit):
    ref = await make("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    await said(backend, ref, b"up")
    await backend.stop(await permit("stop"), ref, 1)
    found = await backend.inspect(ref)
    assert (found.exit.code, found.exit.signal, found.exit.oom) == (137, 9, False)


async def test_a_signal_reaches_the_main_process(backend, make, permit):
    ref = await make("sh", "-c", "trap 'exit 42' USR1; echo up; while :; do sleep 0.05; done")
    await said(backend, ref, b"up")
    await backend.kill(await permit("kill"), ref, "SIGUSR1")
    async for _ in backend.logs(ref, LogQuery(follow=True)):
        pass
    assert (await backend.inspect(ref)).exit.code == 42
    with pytest.raises(Conflict):
        await backend.kill(await permit("kill"), ref, "SIGKILL")
    await backend.start(await permit("start"), ref, ())
    with pytest.raises(UsageError, match="SIGNOPE"):
        await backend.kill(await permit("kill"), ref, "SIGNOPE")


async def test_running_out_of_memory_is_told_as_such(backend, make):
    ref = await make("sh", "-c", "tail /dev/zero", memory_mib=16)
    async for _ in backend.logs(ref, LogQuery(follow=True)):
        pass
    async with asyncio.timeout(30):  # its engine may hear of the end before the cause
        while not ((found := await backend.inspect(ref)).exit and found.exit.oom):
            await asyncio.sleep(0.1)
    assert (found.exit.code, found.exit.reason) == (137, "out of memory")


async def test_an_unknown_id_is_not_found_and_reaches_no_other_path(backend):
    for name in ("0" * 64, "../images", "x/../../info", ""):
        with pytest.raises(NotFound):
            await backend.inspect(SandboxRef("docker", "default", name))


async def test_a_changing_call_needs_a_permit(backend, make):
    ref = await make()
    with pytest.raises(TypeError, match="Permit"):
        await backend.kill(None, ref, "SIGKILL")
    assert (await backend.inspect(ref)).status is Status.RUNNING


async def test_a_create_that_is_cancelled_leaves_nothing(backend, permit, unique):
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.04):
        spec = SandboxSpec(name=unique(), image=IMAGE, command=("true",))
        task = asyncio.ensure_future(backend.create(await permit("create"), spec, (), lambda _: None))
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            await backend.remove(await permit("remove"), task.result(), force=True)
        assert spec.name not in {row.name for row in await backend.list()}


async def test_the_loop_is_not_blocked(backend, make, permit, tmp_path):
    with blockbuster_ctx("sandbox_console.backends.docker"):
        refs = [await make(workspace=str(tmp_path)) for _ in range(3)]
        await backend.list()
        for ref in refs:
            await backend.kill(await permit("kill"), ref, "SIGKILL")


async def test_an_images_labels_are_not_its_own(engine, backend, make):
    image = "sandbox-console-test:labelled"
    engine.docker("import", "-c", "LABEL team=theirs", "-c", "LABEL a2a.token=x", "-", image, stdin=busybox_tree())
    ref = await make(image=image, labels={"mine": "y"})
    assert engine.inspect(ref.id)["Config"]["Labels"]["team"] == "theirs"
    assert (await backend.inspect(ref)).labels == {"mine": "y"}
    [row] = [row for row in await backend.list() if row.ref == ref]
    assert row.labels == {"mine": "y"}
