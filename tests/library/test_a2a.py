"""a2a_pack's own conveniences and an agent of its own, on sandboxes of ours."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from a2a_pack import A2AAgent, NoAuth, RunContext, skill
from a2a_pack import sandbox as contract
from tests.egress import image
from tests.library.conftest import CANARY, EVERY, chosen

from sandbox_console import Conflict, Console, Denied, InvalidSpec, NotFound, Unsupported, UsageError, open_console
from sandbox_console.adapters.a2a import OWNER, SandboxClient, SandboxHandle, SandboxUnavailable
from sandbox_console.model.audit import AuditQuery
from sandbox_console.testing.fake_backend import FakeBackend


@pytest.fixture(params=EVERY)
def backend(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return chosen(request, monkeypatch)


@pytest.fixture
def images(backend: str, request: pytest.FixtureRequest) -> dict[str, str]:
    if backend != "bubblewrap":
        engine = request.getfixturevalue(f"{backend}_engine")
        engine.docker("import", "-c", 'CMD ["/bin/sh"]', "-", image.NAME, stdin=image.tree())
        return {"python:*": image.NAME}
    return {"python:*": "host"}


@pytest.fixture
def buckets():
    with tempfile.TemporaryDirectory(prefix="buckets-") as name:  # pytest's own are closed to a sandbox's user
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "agent-test").mkdir()
        (folder / "agent-test").chmod(0o777)
        yield folder


@pytest.fixture
def client(console: Console, images: dict[str, str], buckets) -> SandboxClient:
    return SandboxClient(console, images=images, workspaces=buckets)


class Agent(A2AAgent):
    name = "counter"
    description = "counts words where they can do no harm"
    version = "1"

    @skill(description="count words")
    async def count(self, ctx: RunContext[NoAuth], text: str) -> int:
        box = await ctx.sandbox.create(contract.SandboxSpec("words", memory_mib=128))
        try:
            done = await box.shell(f"printf %s '{text}' | wc -w")
            assert done.ok
            return int(done.stdout)
        finally:
            await box.stop()
            await ctx.sandbox.remove("words")


async def test_an_agent_app_runs_unchanged_and_leaves_nothing(client, console) -> None:
    assert await Agent().local_invoke("count", sandbox=client, text="three short words") == 3
    assert await client.list() == []
    rows = await console.history(AuditQuery())
    assert {"create", "exec", "stop", "remove"} <= {one.attempt.action for one in rows}


async def test_its_conveniences_run_and_leave_nothing(client) -> None:
    done = await client.run_python("import sys; print(6 * 7); sys.exit(3)")
    assert (done.stdout, done.exit_code, done.ok) == ("42\n", 3, False), done
    done = await client.run_shell("echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 0)
    assert await client.list() == []


async def test_one_who_leaves_early_leaves_nothing(client, console) -> None:
    running = asyncio.create_task(client.run_shell("sleep 1000"))
    while not await client.list():
        await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await client.list() == []


async def test_a_handle_has_what_the_contract_has(client, buckets) -> None:
    spec = contract.SandboxSpec(
        "whole", memory_mib=64, workspace="agent-test", secrets=("GIVEN",), labels={"team": "x", OWNER: "another"}
    )
    box = await client.create(spec)
    try:
        assert isinstance(client, contract.SandboxClient)
        assert isinstance(box, (SandboxHandle, contract.SandboxHandle))
        assert await client.list() == ["whole"], "a label of the caller's gives it to nobody else"
        again = await client.get("whole")
        assert (await again.exec("echo", ["a b", "c"])).stdout == "a b c\n"
        assert (await again.exec("no-such-program")).exit_code == 127
        assert (await again.shell("sleep 60", timeout=0.5)).exit_code == 124
        told = await box.shell('test -n "$GIVEN" && echo it is $GIVEN')
        assert told.ok
        assert CANARY not in told.stdout
        assert (await box.shell("echo hi > /workspace/there")).ok
        assert (buckets / "agent-test/there").read_text() == "hi\n"
        assert await box.logs(tail=5) == ""
        with pytest.raises(Conflict):
            await client.create(contract.SandboxSpec("whole", memory_mib=64))
        await box.stop()
        await box.stop()
        await box.kill()
    finally:
        await client.remove("whole")
    await client.remove("whole")
    await box.stop()
    with pytest.raises(NotFound):
        await client.get("whole")


async def test_what_it_may_not_have_is_refused_and_nothing_is_made(client, console) -> None:
    for spec, error in (
        (contract.SandboxSpec("a1", image="evil:latest"), Denied),
        (contract.SandboxSpec("a2", workspace="agent-.."), InvalidSpec),
        (contract.SandboxSpec("a3", workspace="../../etc"), InvalidSpec),
        (contract.SandboxSpec("a4", secrets=("NOBODYS",)), (InvalidSpec, UsageError)),
    ):
        with pytest.raises(error):
            await client.create(spec)
    assert await client.list() == []


async def test_egress_is_its_own_and_the_policy_holds(client, backend) -> None:
    """Nothing is let out unless it is named; on an engine without a gateway's image to name it is refused."""
    done = await client.run_shell("wc -l < /proc/net/route; ls /sys/class/net")
    assert done.stdout.split() in (["1", "lo"], ["1"]), done
    spec = contract.SandboxSpec("out", memory_mib=64, egress=("api.example.com",))
    if backend != "bubblewrap":
        with pytest.raises(Unsupported, match="egress"):
            await client.create(spec)
        return
    box = await client.create(spec)
    try:
        facts = {one.field: one.value for one in (await box._box.inspect()).effective}
        assert "api.example.com" in facts["egress"] or "gateway" in facts["egress"], facts
    finally:
        await client.remove("out")


async def test_anothers_sandbox_is_neither_seen_nor_removed(client, console, box, images) -> None:
    other = SandboxClient(console, owner="other", images=images)
    made = await other.create(contract.SandboxSpec("theirs", memory_mib=64))
    try:
        assert await client.list() == []
        for name in (box.name, made.name):
            with pytest.raises(NotFound):
                await client.get(name)
            await client.remove(name)
        assert (await box.inspect()).status.live
        assert await other.list() == ["theirs"]
    finally:
        await other.remove("theirs")


async def test_a_read_only_console_makes_nothing(backend, images) -> None:
    async with open_console(backend=backend, read_only=True) as console:
        with pytest.raises(Denied):
            await SandboxClient(console, images=images).run_shell("true")


async def test_on_a_backend_that_does_not_answer_nothing_is_missing_and_nothing_removed(home) -> None:
    fake, other = FakeBackend(), FakeBackend(name="other")
    async with open_console(backends=[fake, other]) as console:
        client = SandboxClient(console)
        await client.create(contract.SandboxSpec("kept"))
        await fake.die("the engine was stopped")
        for call in (client.list(), client.get("kept"), client.remove("kept"), client.get("never-made")):
            with pytest.raises(SandboxUnavailable, match="fake"):
                await call
        await fake.revive()
        assert await client.list() == ["kept"]
        await client.remove("kept")
        assert not fake.sandboxes


async def test_without_a_runtime_it_is_unavailable(home, monkeypatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    async with open_console(backend="docker") as console:
        with pytest.raises(SandboxUnavailable, match="socket"):
            await SandboxClient(console).run_shell("true")


def test_without_its_package_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['a2a_pack'] = None; import sandbox_console.adapters.a2a"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'sandbox-console-tui[a2a]'" in done.stderr
