"""Commands, logs and connections over recorded messages of a real API server (1.20; v5 by its specification)."""

from __future__ import annotations

import pytest

from sandbox_console.backends.kubernetes.logs import nanoseconds
from sandbox_console.errors import Conflict, Denied, Unsupported
from sandbox_console.model.action import Exec
from sandbox_console.model.capability import Capability
from sandbox_console.model.log import LogGap, LogQuery, LogRecord, Stream

STATUS = {
    "exit 3": b'\x03{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: error executing command [sh -c echo hi; exit 3], exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}',
    "well": b'\x03{"metadata":{},"status":"Success"}',
    "not there": b'\x03{"metadata":{},"status":"Failure","message":"Internal error occurred: error executing command in container: failed to exec in container: failed to start exec \\"900b\\": OCI runtime exec failed: exec failed: unable to start container process: exec: \\"nosuch\\": executable file not found in $PATH: unknown","reason":"InternalError","details":{"causes":[{"message":"error executing command"}]},"code":500}',
    "not executable": b'\x03{"metadata":{},"status":"Failure","message":"Internal error occurred: exec: \\"/etc/passwd\\": permission denied: unknown","reason":"InternalError","code":500}',
}


async def first(backend):
    return next(one.ref for one in await backend.list() if one.name == "box-00000")


async def ran(backend, permit, **fields):
    process = await backend.exec(await permit("exec"), Exec(await first(backend), ("echo", "hi"), **fields), ())
    out = [chunk async for chunk in process.output()]
    return out, await process.wait()


@pytest.fixture(autouse=True)
def single(server):
    """What is read of one Sandbox and its Pod."""
    for kind in ("/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes", "/api/v1/namespaces/default/pods"):
        for one in server.answers[kind]["items"]:
            server.answers[f"{kind}/{one['metadata']['name']}"] = one


@pytest.mark.parametrize(("end", "code"), [("exit 3", 3), ("well", 0), ("not there", 127), ("not executable", 126)])
async def test_a_command_ends_with_its_code(make, server, permit, end, code):
    server.frames = [b"\x01", b"\x01hi\n", b"\x02err\n", STATUS[end]]
    out, found = await ran(await make(), permit)
    assert (out, found.code) == ([(Stream.STDOUT, b"hi\n"), (Stream.STDERR, b"err\n")], code)


async def test_stdin_is_refused_where_it_cannot_be_ended_and_ended_where_it_can(make, server, permit):
    server.frames = [b"\x01", STATUS["well"]]
    old = await make()
    assert "before Kubernetes 1.30" in old.capabilities().reason(Capability.EXEC_STDIN)
    await ran(old, permit)
    assert "stdin=1" not in server.asked[-1]
    server.answers["/version"] = {"gitVersion": "v1.31.0"}
    server.speaks = ("v5.channel.k8s.io",)
    new = await make()
    assert new.capabilities().has(Capability.EXEC_STDIN)
    process = await new.exec(await permit("exec"), Exec(await first(new), ("cat",)), ())
    await process.write(b"x" * 40_000)
    await process.close_stdin()
    assert (await process.wait()).code == 0
    assert [message[:1] for message in server.received] == [b"\x00", b"\x00", b"\xff"]
    assert b"".join(message[1:] for message in server.received[:-1]) == b"x" * 40_000


async def test_variables_and_the_folder_are_arguments_of_env(make, server, permit):
    server.frames = [b"\x01", STATUS["well"]]
    await ran(await make(), permit, env={"A": "b c"}, workdir="/srv")
    asked = server.asked[-1]
    assert "container=main" in asked
    assert "command=/srv" in asked
    assert (
        "command=A%3Db+c&command=echo&command=hi" in asked
        or "command=A%3Db%20c&command=echo&command=hi" in asked
        or "command=A=b+c&command=echo&command=hi" in asked
    )


async def test_another_user_is_refused_and_rbac_is_named(make, server, permit):
    server.denied = {"create pods"}
    backend = await make()
    ref = await first(backend)
    assert "create pods/exec" in backend.capabilities().reason(Capability.SHELL)
    with pytest.raises(Unsupported, match=r"exec.user"):
        await backend.exec(await permit("exec"), Exec(ref, ("id",), user="root"), ())
    server.forbidden = {"/api/v1/namespaces/default/pods/box-00000/exec"}
    with pytest.raises(Denied, match="create pods/exec default/box-00000: the cluster forbids it"):
        await backend.exec(await permit("exec"), Exec(ref, ("id",)), ())


async def test_one_whose_container_does_not_run_takes_no_command(make, server, permit):
    pod = server.answers["/api/v1/namespaces/default/pods/box-00000"]
    pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0}}
    backend = await make()
    with pytest.raises(Conflict, match="box-00000 is not running"):
        await backend.exec(await permit("exec"), Exec(await first(backend), ("id",)), ())


async def test_a_log_has_times_and_keeps_its_bytes(make, server):
    server.log = (
        b"2026-11-29T08:11:57.123456789Z one\n2026-11-29T08:11:58Z \xff\x1b[31mtwo\n2026-11-29T08:11:59.5Z three"
    )
    backend = await make()
    ref = await first(backend)
    items = [item async for batch in backend.logs(ref, LogQuery()) for item in batch]
    assert [(one.at_ns % 10**9, one.data) for one in items if isinstance(one, LogRecord)] == [
        (123456789, b"one\n"),
        (0, b"\xff\x1b[31mtwo\n"),
        (500000000, b"three"),
    ]
    since = items[0].at_ns / 10**9 + 0.5
    later = [item.data async for batch in backend.logs(ref, LogQuery(since=since, until=since + 1)) for item in batch]
    assert later == [b"\xff\x1b[31mtwo\n"]
    server.log += b"\nrpc error: code = NotFound desc = container: not found\n"
    *_, told = [item async for batch in backend.logs(ref, LogQuery()) for item in batch]
    assert isinstance(told, LogGap)  # the node's words are not taken for the guest's
    assert told.reason == "the node could not read on: rpc error: code = NotFound desc = container: not found"


def test_a_time_that_is_none_is_zero():
    assert nanoseconds(b"\x1b]0;") == nanoseconds(b"") == 0
    assert nanoseconds(b"1970-01-01T00:00:01.000000002Z") == 1_000_000_002
    assert nanoseconds(b"1970-01-01T01:00:01.5+01:00") == 1_500_000_000
