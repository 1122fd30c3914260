from __future__ import annotations

import asyncio
import json
import secrets as random
import subprocess
from pathlib import Path

import pytest
from tests.support.engine import IMAGE
from tests.support.require import requires

from sandbox_console.errors import SecretError, Unsupported
from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

pytestmark = requires("docker")


@pytest.fixture
def canary():
    return f"canary-{random.token_hex(12)}"


async def output(backend, ref):
    return b"".join([item.data async for batch in backend.logs(ref, LogQuery(follow=True)) for item in batch])


def on_disk(folder: Path, needle: str) -> list[str]:
    done = subprocess.run(["grep", "-rlaF", "--devices=skip", needle, str(folder)], capture_output=True, check=False)
    return done.stdout.decode().split()


def in_arguments(needle: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:
            continue
        if needle.encode() in words:
            found.append(words.decode(errors="replace"))
    return found


async def test_a_secret_reaches_the_command_and_nothing_that_is_kept(backend, make, canary, docker_engine):
    value = f"{canary} 'q' \\n $HOME\nsecond line\n"
    given = [ResolvedSecret("TOKEN", value), ResolvedSecret("PEM", value, inject="file")]
    script = 'printf %s "$TOKEN" | md5sum; md5sum < /run/secrets/PEM; stat -c %a /run/secrets/PEM; read x; echo $?; env | grep -c _sc_; sleep 300'
    ref = await make("sh", "-c", script, secrets=given)
    seen = b""
    async with asyncio.timeout(60):
        async for batch in backend.logs(ref, LogQuery(follow=True)):
            seen += b"".join(item.data for item in batch)
            if seen.count(b"\n") >= 5:
                break
    lines = seen.decode().split("\n")
    assert lines[0] == lines[1]
    assert lines[2:5] == ["600", "1", "0"]
    import hashlib

    assert lines[0].split()[0] == hashlib.md5(value.encode()).hexdigest()
    assert canary not in json.dumps(docker_engine.inspect(ref.id))
    assert canary not in repr(await backend.inspect(ref))
    assert not on_disk(docker_engine.data, canary)
    assert not on_disk(docker_engine.folder / "exec", canary)
    assert not in_arguments(canary)
    for value in given:
        assert canary not in repr(value)


async def test_started_elsewhere_it_says_so_and_ends(backend, make, canary, docker_engine):
    given = [ResolvedSecret("TOKEN", canary)]
    ref = await make("echo", "ran", start=False, secrets=given)
    docker_engine.docker("start", ref.id)
    async with asyncio.timeout(12):
        said = await output(backend, ref)
    assert b"sandbox-console start" in said
    assert b"ran" not in said
    found = await backend.inspect(ref)
    assert (found.status, found.exit.code) == (Status.EXITED, 78)


async def test_each_start_brings_them_anew(backend, make, permit, canary):
    given = [ResolvedSecret("TOKEN", canary)]
    ref = await make("sh", "-c", 'echo "${#TOKEN}"', secrets=given)
    await output(backend, ref)
    await backend.start(await permit("start"), ref, given)
    assert await output(backend, ref) == f"{len(canary)}\n".encode() * 2


async def test_a_start_without_its_secrets_or_with_others_is_refused(backend, make, permit, canary):
    ref = await make("true", start=False, secrets=[ResolvedSecret("TOKEN", canary)])
    with pytest.raises(SecretError, match="TOKEN"):
        await backend.start(await permit("start"), ref, ())
    both = [ResolvedSecret("TOKEN", canary), ResolvedSecret("OTHER", canary)]
    with pytest.raises(SecretError, match="OTHER"):
        await backend.start(await permit("start"), ref, both)
    assert (await backend.inspect(ref)).status is Status.CREATED


async def test_a_placeholder_is_unsupported(backend, permit, unique):
    spec = SandboxSpec(name=unique(), image=IMAGE, secrets=("T",))
    with pytest.raises(Unsupported, match="placeholder"):
        await backend.create(
            await permit("create"), spec, [ResolvedSecret("T", "v" * 9, "placeholder")], lambda _: None
        )


async def test_a_command_and_a_shell_get_them_unseen(backend, make, permit, canary, docker_engine):
    ref = await make()
    given = [ResolvedSecret("TOKEN", canary), ResolvedSecret("PEM", f"{canary}\nx", inject="file")]
    process = await backend.exec(
        await permit("exec"), Exec(ref, ("sh", "-c", 'echo "${#TOKEN}"; wc -c < /run/secrets/PEM; sleep 100')), given
    )
    seen = b""
    async for _, data in process.output():
        seen += data
        if seen.count(b"\n") == 2:
            break
    assert seen.split() == [str(len(canary)).encode(), str(len(canary) + 2).encode()]
    engine = await backend._engine()
    exec_id = process._execution.id
    assert canary not in json.dumps(await engine.call("GET", f"exec/{exec_id}/json"))
    assert canary not in json.dumps(docker_engine.inspect(ref.id))
    assert not on_disk(docker_engine.data, canary)
    assert not on_disk(docker_engine.folder / "exec", canary)
    assert not in_arguments(canary)
    await process.kill()
    terminal = await backend.shell(await permit("shell"), OpenShell(ref), given[:1])
    await terminal.write(b'echo "<${#TOKEN}>"\n')
    seen = b""
    async with asyncio.timeout(60):
        while f"<{len(canary)}>".encode() not in seen:
            seen += await terminal.read()
    assert canary.encode() not in seen
    await terminal.close()


async def test_a_foreign_container_without_memory_for_files_is_refused(backend, permit, docker_engine, unique):
    from sandbox_console.model.sandbox import SandboxRef

    name = unique()
    docker_engine.docker("run", "-d", "--network", "none", "--name", name, IMAGE, "sleep", "100")
    try:
        ref = SandboxRef("docker", "default", docker_engine.inspect(name)["Id"])
        with pytest.raises(Unsupported, match="tmpfs"):
            await backend.exec(await permit("exec"), Exec(ref, ("true",)), [ResolvedSecret("P", "v" * 9, "file")])
    finally:
        docker_engine.docker("rm", "-f", name)


async def test_values_that_cannot_be_handed_over_are_refused_without_showing_them(backend, make):
    with pytest.raises(SecretError) as caught:
        await make("true", secrets=[ResolvedSecret("TOKEN", "hidden\0value")])
    assert "hidden" not in str(caught.value)
