"""Commands by the Python API, on real sandboxes."""

from __future__ import annotations

import asyncio
import io
import signal

import pytest

from sandbox_console import AuditQuery, Conflict, NotFound, SandboxEnded, Stream, UsageError

MEBIBYTE = 1 << 20


async def test_bytes_and_text_go_in_and_come_out(box):
    done = await box.exec(["cat"], stdin="grüße\n")
    assert (done.ok, done.exit_code, done.stdout, done.text) == (True, 0, "grüße\n".encode(), "grüße\n")
    assert (await box.exec(["cat"], stdin=b"\0\xff")).stdout == b"\0\xff"
    both = await box.exec("echo out; echo err >&2; exit 3")
    assert (both.ok, both.exit_code, both.text, both.error_text) == (False, 3, "out\n", "err\n")
    with pytest.raises(UsageError, match="not a command"):
        await box.exec([])


async def test_where_and_as_what_it_runs(box):
    done = await box.exec('echo "$A $(pwd)"', env={"A": "b"}, workdir="/tmp")
    assert done.text == "b /tmp\n"
    assert (await box.exec(["no-such-program"])).exit_code == 127


async def test_input_comes_from_a_file_a_path_and_iterators(box, tmp_path):
    file = tmp_path / "in"
    file.write_bytes(b"x" * 3 * MEBIBYTE)
    count = ["wc", "-c"]
    assert int((await box.exec(count, stdin=file)).text) == 3 * MEBIBYTE
    with file.open("rb") as opened:
        assert int((await box.exec(count, stdin=opened)).text) == 3 * MEBIBYTE
    assert (await box.exec(["cat"], stdin=io.StringIO("text"))).text == "text"
    assert (await box.exec(["cat"], stdin=iter(["a", b"b", b"", "c"]))).text == "abc"

    async def chunks():
        for word in ("d", "e"):
            await asyncio.sleep(0)
            yield word

    assert (await box.exec(["cat"], stdin=chunks())).text == "de"


async def test_a_failing_input_is_the_callers_error_and_ends_the_command(box, console):
    class Own(Exception):
        pass

    async def fails():
        yield b"first half\n"
        await asyncio.sleep(0.05)
        raise Own("mine")

    def fails_in_a_thread():
        yield "first half\n"
        raise Own("mine")

    for source in (fails(), fails_in_a_thread()):
        with pytest.raises(Own, match="mine"):
            await box.exec("cat; echo all of it > /tmp/done", stdin=source)
    with pytest.raises(TypeError, match="int"):
        await box.exec(["cat"], stdin=iter([1]))
    assert not await box.exists("/tmp/done")
    assert not [one for one in await console._console.inside.processes(box.ref) if one.command.startswith("cat")]
    rows = [row for row in await console.history(AuditQuery()) if row.attempt.action == "exec"]
    assert {row.outcome for row in rows} == {"failed"}
    assert {row.end.body["code"] for row in rows if row.end} == {"input_failed"}


async def test_output_is_read_as_it_comes_and_leaving_ends_the_command(box, console):
    async with box.stream("for i in 1 2 3; do echo $i; read x; done; exit 5", stdin="go\ngo\ngo\n") as running:
        chunks = [data async for stream, data in running if stream is Stream.STDOUT]
        assert b"".join(chunks) == b"1\n2\n3\n"
        assert (await running.result()).exit_code == 5
    async with box.stream("echo here; sleep 86397") as running:
        async for _, data in running:
            assert data == b"here\n"
            break
    assert not [one for one in await console._console.inside.processes(box.ref) if "86397" in one.command]


async def test_who_does_not_read_holds_the_command_back_and_can_still_wait_for_it(box):
    async with box.stream(["head", "-c", str(8 * MEBIBYTE), "/dev/zero"]) as running:
        done = await running.result()
    assert (done.exit_code, done.stdout) == (0, b"")


async def test_output_goes_to_files_uncapped_and_the_rest_into_the_result(box, tmp_path):
    script = f"head -c {3 * MEBIBYTE} /dev/zero; head -c {2 * MEBIBYTE} /dev/zero >&2"
    done = await box.exec(script, stdout=tmp_path / "out")
    assert (tmp_path / "out").stat().st_size == 3 * MEBIBYTE
    assert (done.stdout, len(done.stderr), done.truncated) == (b"", MEBIBYTE, True)
    kept = io.BytesIO()
    assert not (await box.exec(f"head -c {2 * MEBIBYTE} /dev/zero", stdout=kept)).truncated
    assert len(kept.getvalue()) == 2 * MEBIBYTE
    closed = (tmp_path / "out").open("wb")
    closed.close()
    with pytest.raises(ValueError, match="closed file"):
        await box.exec(["echo", "x"], stdout=closed)


async def test_the_result_tells_the_process_the_signal_and_the_time(box):
    killed = await box.exec("kill -9 $$")
    assert (killed.exit_code, killed.signal) == (137, signal.SIGKILL)
    assert killed.pid
    late = await box.exec(["sleep", "1000"], timeout_s=0.2)
    assert (late.exit_code, late.timed_out) == (124, True)
    assert "0.2 s" in late.reason


async def test_a_sandbox_that_ends_meanwhile_is_no_137(console, spec):
    for end in (lambda one: one.kill(), lambda one: one.remove(force=True)):
        box = await console.create(spec())
        running = asyncio.ensure_future(box.exec("echo begun > /tmp/begun; sleep 1000"))
        while not await box.exists("/tmp/begun"):
            await asyncio.sleep(0.01)
        await end(box)
        with pytest.raises(SandboxEnded, match=box.name):
            await running
        try:
            with pytest.raises(Conflict):
                await box.exec(["true"])
            await box.remove()
        except NotFound:
            pass


async def test_a_cancelled_command_has_ended_when_the_cancellation_is_told(box, console):
    running = asyncio.ensure_future(box.exec("echo > /tmp/begun; sleep 86396"))
    while not await box.exists("/tmp/begun"):
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not [one for one in await console._console.inside.processes(box.ref) if "86396" in one.command]
    [row] = [row for row in await console.history(AuditQuery()) if row.attempt.action == "exec"]
    assert row.outcome == "cancelled"


@pytest.mark.parametrize("how", ["cancelled", "timed out"])
async def test_an_input_that_is_cut_short_is_never_taken_for_all_of_it(box, how: str):
    """A program that is ended while it reads must not see the end of its input, and do with a part what is for all."""
    passed = asyncio.Event()

    async def source():
        yield b"a part"
        passed.set()
        await asyncio.sleep(1000)

    command = "cat > /tmp/got; cat /tmp/got > /tmp/done"
    running = asyncio.create_task(box.exec(command, stdin=source(), timeout_s=1 if how == "timed out" else None))
    await passed.wait()
    while not await box.exists("/tmp/got") or await box.read_file("/tmp/got") != b"a part":
        await asyncio.sleep(0.02)
    if how == "cancelled":
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    else:
        assert (await running).timed_out
    assert not await box.exists("/tmp/done")


async def test_a_result_tells_its_process_and_what_ended_it(box):
    done = await box.exec("kill -TERM $$")
    assert (done.exit_code, done.signal) == (143, 15)
    assert done.pid is not None
    assert done.pid > 0
    assert done.audit_id > 0


async def test_a_command_out_of_memory_says_so(console, spec, monkeypatch):
    async with console.create(spec(memory_mib=48, limits="best-effort")) as box:
        facts = {fact.field: fact.enforced for fact in (await box.inspect()).effective}
        if not facts["memory_mib"]:
            pytest.skip("no limit of memory here")
        with monkeypatch.context() as patient:  # a busy engine may tell of it seconds after the end
            patient.setattr("sandbox_console.backends.docker.process._OOM_LOOKS_S", (0.0, 0.1, 0.4, 2.0, 5.0, 20.0))
            done = await box.exec("x=$(head -c 200000000 /dev/zero | tr '\\0' a)", timeout_s=60)
        assert (done.exit_code, done.signal, done.oom, done.reason) == (137, 9, True, "out of memory")
        done = await box.exec("kill -KILL $$")
        assert (done.exit_code, done.signal, done.oom, done.reason) == (137, 9, False, "")
