"""Quarantine of real sandboxes: contained, kept, refused to everybody, and undone."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.egress import image
from tests.incident.conftest import Make, until_ended
from tests.library.conftest import IMAGES

from sandbox_console.__main__ import main
from sandbox_console.errors import BackendError, ConsoleError, Denied
from sandbox_console.model import action
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, Console, open_console
from sandbox_console.service.incident.bundle_verify import verify as verify_bundle  # fmt: skip
from sandbox_console.service.incident.quarantine import plan as plan_quarantine
from sandbox_console.service.incident.quarantine import quarantine, release

COUNTS = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done"


async def lines(console: Console, ref: SandboxRef) -> int:
    from sandbox_console.model.log import LogQuery

    return sum([len(batch) async for batch in console.logs(ref, LogQuery())])


def refused(console: Console, ref: SandboxRef) -> list:
    yes = Consent(yes=True, confirm=ref.id)
    return [
        lambda: console.perform(action.Exec(ref, ("true",)), consent=yes).result(),
        lambda: console.perform(action.Remove(ref, force=True), consent=yes).result(),
        lambda: console.perform(action.Resume(ref), consent=yes).result(),
        lambda: console.perform(action.Start(ref), consent=yes).result(),
        lambda: console.shell(action.OpenShell(ref), consent=yes),
    ]


async def test_it_is_frozen_held_and_let_go(console: Console, make: Make, backend: str) -> None:
    ref = await make("sh", "-c", COUNTS)
    sandbox = await console.inspect(ref)
    planned = [step.what for step in await plan_quarantine(console, sandbox)]
    done = await quarantine(console, sandbox, "it looked odd")
    assert done.contained, done.steps
    assert [step.what for step in done.steps] == planned
    [evidence] = [step for step in done.steps if step.what == "evidence"]
    assert verify_bundle(io.BytesIO(Path(evidence.note).read_bytes())).ok
    held = await console.inspect(ref)
    assert held.status is Status.PAUSED
    assert held.quarantine.startswith("in quarantine: it looked odd (")
    before = await lines(console, ref)
    await asyncio.sleep(0.4)
    assert await lines(console, ref) == before
    for attempt in refused(console, ref):
        with pytest.raises(Denied) as error:
            await attempt()
        assert "quarantine --undo" in error.value.hint
    undone = await release(console, held)
    assert all(step.done for step in undone.steps)
    assert (await console.inspect(ref)).quarantine == ""
    async with asyncio.timeout(20):
        while await lines(console, ref) <= before:
            await asyncio.sleep(0.1)
    assert (await console.perform(action.Exec(ref, ("true",))).result()).exit_code == 0
    [entry] = await console.history(AuditQuery(action="quarantine"))
    assert (entry.outcome, entry.attempt.body["reason"]) == ("ok", "it looked odd")


@pytest.fixture
async def gated(backend: str, home: Path, request: pytest.FixtureRequest) -> AsyncIterator[tuple[Console, SandboxRef]]:
    """A console, and a sandbox with a gateway."""
    tables: dict[str, dict] = {}
    if backend == "docker":
        engine = request.getfixturevalue("docker_engine")
        engine.docker("import", "-c", 'CMD ["/bin/sh"]', "-", image.NAME, stdin=image.tree())
        engine.docker("network", "create", "--subnet", "93.184.217.0/24", "quarantine-out")
        tables = {"docker": {"egress_image": image.NAME, "egress_network": "quarantine-out"}}
    async with open_console(Config(backends=tables), only_backend=backend) as console:
        [place] = console.places
        hosts = ("example.com", "*.example.org:443")
        spec = SandboxSpec("gated", IMAGES[backend], ("sleep", "1000"), egress=hosts)
        ref = (await console.perform(action.Create(spec, *place)).result()).ref
        yield console, ref
        with contextlib.suppress(ConsoleError):
            await release(console, await console.inspect(ref))
        await console.perform(action.Remove(ref, force=True), consent=Consent(yes=True, confirm=ref.id)).result()
    if backend == "docker":
        engine.docker("network", "rm", "quarantine-out")


async def test_egress_is_cut_and_restored(gated: tuple[Console, SandboxRef]) -> None:
    console, ref = gated
    before = (await console.egress.state(ref)).rules
    done = await quarantine(console, await console.inspect(ref), keep=False)
    assert done.contained, done.steps
    [step] = [step for step in done.steps if step.what == "egress"]
    assert step.note == "everything is denied; the gateway says so of example.com"
    assert (await console.egress.state(ref)).rules == ()
    with pytest.raises(Denied):
        await console.perform(action.ChangeEgress(ref, remove=("example.com",))).result()
    again = await quarantine(console, await console.inspect(ref), "again", keep=False)
    assert again.contained, again.steps
    await release(console, await console.inspect(ref))
    assert (await console.egress.state(ref)).rules == before


async def test_another_console_is_refused_and_its_shell_ends(console: Console, make: Make, backend: str) -> None:
    ref = await make("sh", "-c", COUNTS)
    async with open_console(Config(), only_backend=backend) as other:
        shell = await other.shell(action.OpenShell(ref, shell="/bin/sh"))
        own = await console.shell(action.OpenShell(ref, shell="/bin/sh"))
        done = await quarantine(console, await console.inspect(ref), keep=False)
        [step] = [step for step in done.steps if step.what == "sessions"]
        assert step.note.startswith("1 shells")
        async with asyncio.timeout(30):
            while not (own.closed and shell.closed):
                await asyncio.sleep(0.1)
        with pytest.raises(Denied):
            await other.perform(action.Exec(ref, ("true",))).result()
    await release(console, await console.inspect(ref))


async def test_one_that_has_ended_is_held_for_the_evidence(console: Console, make: Make) -> None:
    sandbox = await until_ended(console, await make("sh", "-c", "echo done; exit 3"))
    done = await quarantine(console, sandbox, "look at it")
    assert done.contained, done.steps
    assert "freeze" not in {step.what for step in done.steps}
    yes = Consent(yes=True, confirm=sandbox.ref.id)
    with pytest.raises(Denied):
        await console.perform(action.Remove(sandbox.ref), consent=yes).result()
    await release(console, await console.inspect(sandbox.ref))
    with pytest.raises(ConsoleError, match="is not in quarantine"):
        await release(console, sandbox)


async def test_time_limits_wait(console: Console, make: Make) -> None:
    ref = await make("sleep", "1000", max_duration_s=3.0)
    done = await quarantine(console, await console.inspect(ref), keep=False)
    assert done.contained, done.steps
    ends = time.monotonic() + 6
    while time.monotonic() < ends:
        assert (await console.inspect(ref)).status is Status.PAUSED
        await asyncio.sleep(0.5)
    await release(console, await console.inspect(ref))
    await until_ended(console, ref)


async def test_a_damaged_record_holds(console: Console, make: Make, home: Path) -> None:
    ref = await make("sleep", "1000")
    await quarantine(console, await console.inspect(ref), keep=False)
    [file] = home.rglob("quarantine/*.json")
    file.write_bytes(b"{")
    with pytest.raises(Denied, match="is damaged"):
        await console.perform(action.Exec(ref, ("true",))).result()
    file.unlink()
    await console.perform(action.Resume(ref)).result()


def test_by_the_command_line(backend: str, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["--backend", backend, *words])
        said = capfd.readouterr()
        return code, said.out, said.err

    image = IMAGES[backend]
    for name, team in (("one", "red"), ("two", "red"), ("three", "blue")):
        command = ("--label", f"team={team}", "--", "sleep", "1000")
        assert run("create", name, "--image", image, *command)[0] == 0
    try:
        code, out, _ = run("quarantine", "--label", "team=red", "--dry-run")
        assert (code, "freeze every process (undo: it is thawed)" in out) == (0, True)
        assert out.count("hold") == 2
        assert json.loads(run("--json", "ls")[1].splitlines()[0])["status"] == "running"
        assert run("quarantine", "--label", "team=red")[0] == 4
        code, out, _ = run(
            "--yes", "quarantine", "--filter", "label.team=r* name!=two", "--reason", "odd", "--no-evidence"
        )
        assert (code, out.splitlines()[0].startswith("one  ")) == (0, True)
        assert "two" not in out
        assert "in quarantine: odd (" in run("ls")[1]
        assert run("exec", "one", "--", "true")[0] == 125
        assert run("--yes", "rm", "--force", "one")[0] == 4
        assert run("quarantine", "--filter", "nonsense")[0] == 2
        code, out, _ = run("--json", "quarantine", "two", "three", "--no-evidence")
        told = [json.loads(line) for line in out.splitlines()]
        assert (code, [one["name"] for one in told], {one["ok"] for one in told}) == (0, ["two", "three"], {True})
        assert run("stop", "--grace", "1s", "three")[0] == 0
        assert "three" not in run("--yes", "prune")[1]
        assert run("--yes", "quarantine", "--undo", "--filter", "name=*")[0] == 0
    finally:
        assert run("--yes", "rm", "--force", "one", "two", "three")[0] == 0


SERVES = "busybox httpd -f -p 8000 -h /usr || python3 -m http.server 8000"


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), 5)
        writer.write(b"HEAD / HTTP/1.0\r\n\r\n")
        answered = (await asyncio.wait_for(reader.read(4), 5)) == b"HTTP"
        writer.close()
        return answered
    except OSError:
        return False


async def _until_it_answers(port: int) -> None:
    async with asyncio.timeout(60):
        while not await _answers(port):
            await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_published_ports_are_closed_and_opened_again(console: Console, make: Make) -> None:
    port = _free_port()
    ref = await make("sh", "-c", SERVES, ports=(f"127.0.0.1:{port}:8000",))
    await _until_it_answers(port)
    done = await quarantine(console, await console.inspect(ref), keep=False)
    assert {step.what: step.done for step in done.steps}["ports"]
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    again = await quarantine(console, await console.inspect(ref), keep=False)
    assert {step.what: step.done for step in again.steps}["ports"], "twice is as good as once"
    undone = await release(console, await console.inspect(ref))
    assert {step.what: step.done for step in undone.steps}["ports"]
    await _until_it_answers(port)


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_a_port_that_another_program_took_keeps_it_in_quarantine(console: Console, make: Make) -> None:
    port = _free_port()
    ref = await make("sh", "-c", SERVES, ports=(f"127.0.0.1:{port}:8000",))
    await _until_it_answers(port)
    await quarantine(console, await console.inspect(ref), keep=False)
    said = pytest.raises(BackendError, match=f"stays in quarantine: ports: .*{port} of this host is taken")
    with socket.create_server(("127.0.0.1", port)), said:
        await release(console, await console.inspect(ref))
    assert (await console.inspect(ref)).quarantine
    await release(console, await console.inspect(ref))
    await _until_it_answers(port)
