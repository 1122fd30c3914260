"""Sandboxes, their files and their lives by the Python API, on real sandboxes."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import stat
import urllib.request

import pytest
from tests.library.conftest import CANARY

from sandbox_console import (
    AuditQuery,
    Conflict,
    Consent,
    ConsoleError,
    InvalidSpec,
    NeedsConfirmation,
    NotFound,
    Secret,
    SecretError,
    TimedOut,
    UsageError,
)


async def names(console) -> list[str]:
    return [one.name for one in (await console.list())[0] if one.managed]


async def test_a_block_removes_what_it_made_and_await_leaves_it(console, spec):
    async with console.create(spec()) as box:
        assert await names(console) == [box.name]
    with pytest.raises(ZeroDivisionError):
        async with console.create(spec()):
            raise ZeroDivisionError
    assert await names(console) == []
    kept = await console.create(spec())
    found = await console.sandbox(kept.name)
    assert found.ref == kept.ref == (await console.sandbox(kept.ref)).ref
    with pytest.raises(Conflict, match="name"):
        await console.create((await kept.inspect()).spec)
    async with console.create(spec()) as gone:
        await gone.remove(force=True)
    await kept.stop(grace_s=0)
    await kept.remove()
    with pytest.raises(NotFound):
        await console.sandbox(kept.name)
    with pytest.raises(NotFound):
        await console.sandbox(kept.ref)
    with pytest.raises(InvalidSpec):
        await console.create(spec(cpus=-1.0))


async def test_a_create_that_is_cancelled_at_any_moment_leaves_nothing(console, spec, backend):
    chance, made = random.Random(1), 0
    longest = 0.25 if backend == "docker" else 0.12
    for _ in range(12 if backend == "docker" else 30):
        creating = asyncio.ensure_future(console.create(spec())._make())
        await asyncio.sleep(chance.random() * longest)
        creating.cancel()
        try:
            box = await creating
        except asyncio.CancelledError:
            assert await names(console) == []
        else:
            made += 1
            await box.remove(force=True)
    assert await names(console) == []


async def test_a_create_whose_end_is_being_recorded_is_taken_back(console, spec):
    journal = await console._console.audit_log.journal()
    finish = journal.finish
    begun = asyncio.Event()

    async def slow(permit, *rest, **more):
        if permit.verb == "create":
            begun.set()
            await asyncio.sleep(0.2)
        await finish(permit, *rest, **more)

    journal.finish = slow
    creating = asyncio.ensure_future(console.create(spec())._make())
    await begun.wait()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert await names(console) == []
    rows = [(row.attempt.action, row.outcome) for row in await console.history(AuditQuery())]
    assert ("remove", "ok") in rows


async def test_files_are_written_read_and_looked_at(box, backend):
    await box.write_file("/tmp/deep/er/greeting.txt", "grüße", mode=0o600)
    assert await box.read_file("/tmp/deep/er/greeting.txt") == "grüße".encode()
    assert (await box.exec(["stat", "-c", "%a", "/tmp/deep/er/greeting.txt"])).text == "600\n"
    assert (await box.exec(["cat", "/tmp/deep/er/greeting.txt"])).text == "grüße"  # it is the sandbox's user's own
    await box.write_file("/tmp/deep/er/greeting.txt", b"\0" * 70_000)
    assert await box.read_file("/tmp/deep/er/greeting.txt") == b"\0" * 70_000
    await box.mkdir("/tmp/a/b/c")
    await box.mkdir("/tmp/a/b/c")
    assert (await box.exec(["touch", "/tmp/a/b/c/mine"])).ok
    assert await box.exists("/tmp/a/b/c/mine")
    assert not await box.exists("/tmp/a/nothing")


async def test_reads_are_bounded_and_links_stay_inside(box, tmp_path):
    (tmp_path / "outside").write_text("of the host")
    script = (
        f"head -c 100000 /dev/zero > /tmp/big; ln -s big /tmp/link; ln -s {tmp_path}/outside /tmp/out; ln -s o /tmp/o"
    )
    assert (await box.exec(script)).ok
    assert len(await box.read_file("/tmp/link")) == 100_000
    with pytest.raises(UsageError, match="100000 bytes"):
        await box.read_file("/tmp/big", max_bytes=99_999)
    for path, error in (("/tmp/out", NotFound), ("/tmp/no", NotFound), ("/tmp", Conflict), ("big", UsageError)):
        with pytest.raises(error):
            await box.read_file(path)
    with pytest.raises(ConsoleError):
        await box.read_file("/tmp/o")
    for path in ("/tmp/big/below", "/tmp/big/deeper/below"):
        with pytest.raises((Conflict, NotFound)):
            await box.write_file(path, "x")


async def test_logs_wait_and_the_rest_of_a_life(console, spec):
    async with console.create(spec("sh", "-c", "echo one; echo two >&2; exit 4")) as box:
        end = await box.wait(timeout_s=60)
        assert end.code == 4
        said = {str(one.stream): one.data async for one in box.logs()}
        assert said == {"stdout": b"one\n", "stderr": b"two\n"}
    async with console.create(spec(), start=False) as box:
        with pytest.raises(Conflict):
            await box.exec(["true"])
        await box.start()
        with pytest.raises(TimedOut, match="running"):
            await box.wait(timeout_s=0.1)
        await box.kill()
        assert (await box.wait()).signal == 9
        await box.restart()
        assert (await box.exec(["true"])).ok


async def test_a_shell_is_typed_into_and_closed_by_its_block(box):
    async with box.shell(shell="/bin/sh") as session:
        await session.write(b"echo $((6*7))\n")
        seen = b""
        while b"42" not in seen:
            seen += await asyncio.wait_for(session.read(), 30)
    assert session.closed


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)  # docker's gateway needs an image: tests/egress
async def test_ports_tell_where_they_are_answered_for(console, spec):
    serve = "mkdir -p /tmp/www; cd /tmp/www; echo hi > index.html; exec python3 -m http.server 8000"
    async with console.create(spec("sh", "-c", serve, ports=("8000",))) as box:
        [port] = await box.ports()
        assert (port.address, port.port) == ("127.0.0.1", 8000)
        for _ in range(600):
            try:
                answer = await asyncio.to_thread(urllib.request.urlopen, f"http://{port.host_address}/")
            except OSError:
                await asyncio.sleep(0.05)
            else:
                assert answer.read() == b"hi\n"
                break
        else:
            pytest.fail("nothing answered")
        await box.stop(grace_s=0)
        assert list(await box.ports()) == []


async def test_secrets_by_value_reach_the_sandbox_and_nothing_else(console, spec, home):
    other = "another-value-for-one-sandbox"
    async with console.create(spec(secrets=("GIVEN",)), secrets={"MORE": Secret(other)}) as box:
        told = await box.exec('test "$GIVEN" = "$(echo ' + CANARY[::-1] + ' | rev)" && echo "$GIVEN $MORE"')
        assert told.text == "[secret] [secret]\n"  # masked, and handed over
        shown = repr((await box.inspect(), Secret(other), await console.history(AuditQuery())))
        assert CANARY not in shown
        assert other not in shown
        for path in home.rglob("*"):
            if path.is_file() and not path.is_symlink() and stat.S_ISREG(path.stat().st_mode):
                data = path.read_bytes()
                assert CANARY.encode() not in data, path
                assert other.encode() not in data, path
    with sqlite3.connect(home / "state" / "audit" / "audit.db") as db:
        dump = "\n".join(db.iterdump())
    assert CANARY not in dump
    assert other not in dump
    with pytest.raises(Conflict, match="another value"):
        await console.create(spec(), secrets={"MORE": Secret("yet-another-value")})
    with pytest.raises(SecretError, match="fewer than 8"):
        await console.create(spec(), secrets={"SHORT": Secret("short")})


@pytest.mark.parametrize("backend", ["docker"], indirect=True)  # on bubblewrap there is nothing that others made
async def test_what_others_made_needs_consent(console, request):
    engine = request.getfixturevalue("docker_engine")
    engine.docker("run", "-d", "--name", "foreign", "sandbox-console-test:busybox", "sleep", "1000")
    try:
        box = await console.sandbox("foreign")
        with pytest.raises(NeedsConfirmation) as refused:
            await box.exec(["true"])
        agreed = await console.sandbox("foreign", consent=Consent(yes=True, confirm=refused.value.token))
        assert (await agreed.exec(["true"])).ok
    finally:
        engine.docker("rm", "-f", "foreign")
