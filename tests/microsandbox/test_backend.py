"""The backend without a working KVM: with a home that the SDK itself made, and a boot that failed for real."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import pytest
from msgspec import structs
from tests.support import msb_home
from tests.support.microimage import IMAGE, archive
from tests.support.permits import permit

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.microsandbox import MicrosandboxProvider, kvm, lifecycle, sdk
from sandbox_console.backends.microsandbox.backend import MicrosandboxBackend
from sandbox_console.errors import BackendError, ConfigError, Conflict, InvalidSpec, NotFound, Unsupported, UsageError
from sandbox_console.model.action import Exec
from sandbox_console.model.capability import Capability
from sandbox_console.model.egress import EgressRule
from sandbox_console.model.event import Changed, HealthChanged, Listed, Removed
from sandbox_console.model.log import LogQuery
from sandbox_console.model.sandbox import HealthState, SandboxRef, Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

__all__ = ["permit"]

pytest.importorskip("microsandbox", reason="microsandbox has no wheel for this platform")

CANARY, VARIABLE = "canary-secret-4711", "canary-variable-0815"

# A create boots; without a working KVM the boot fails and leaves a stopped row, which is what is looked at here.
_CREATE = """
import asyncio, sys
from microsandbox import Image, MicrosandboxError, Sandbox, Secret
async def main():
    secret = Secret.env("TOKEN", value=sys.argv[2], allow=["example.com"])
    try:
        await Sandbox.create("left-over", image=Image.bind(sys.argv[1]), memory=256, cpus=1, env={"PLAIN": sys.argv[3]},
                             labels={"team": "x"}, secrets=[secret], detached=True)
    except MicrosandboxError as error:
        print(error)
    else:
        await (await Sandbox.get("left-over")).kill()
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def used_home():
    """A home with one sandbox whose boot failed, made by the SDK itself (7-10 s, once)."""
    with tempfile.TemporaryDirectory(prefix="sc-msb-", dir="/tmp") as folder:
        root = Path(folder) / "root"
        (root / "bin").mkdir(parents=True)
        for turn in range(3):  # on a loaded machine the SDK (0.7.11) may abort as it ends
            home = Path(folder) / f"home-{turn}"
            words = [sys.executable, "-c", _CREATE, str(root), CANARY, VARIABLE]
            done = subprocess.run(words, env={**os.environ, "MSB_HOME": str(home)}, check=False, timeout=100)
            if done.returncode != -signal.SIGABRT:
                break
        assert done.returncode == 0
        yield home


@pytest.fixture
def backend(used_home, tmp_path):
    with msb_home.at(used_home):
        yield MicrosandboxBackend(tmp_path / "state")


@pytest.fixture
def empty(tmp_path):
    # A short path: the runtime's sockets are below it, and a socket's path has 107 bytes at most.
    with tempfile.TemporaryDirectory(prefix="sc-msb-", dir="/tmp") as folder, msb_home.at(Path(folder) / "home"):
        yield MicrosandboxBackend(tmp_path / "state")


def local_root(tmp_path):
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True, exist_ok=True)
    return f"dir:{root}"


def everything(sandbox):
    return repr(msgspec.to_builtins(sandbox))


async def test_a_sandbox_is_shown_and_nothing_secret_of_it(backend, used_home):
    (row,) = await backend.list()
    assert (row.name, row.managed, row.maker) == ("left-over", False, "microsandbox")
    assert row.image.startswith("dir:/tmp/sc-msb-")
    assert row.labels == {"team": "x"}
    assert abs(row.created_at - time.time()) < 300
    facts = {fact.field: fact.value for fact in row.effective}
    assert (facts["memory_mib"], facts["cpus"], facts["env"], facts["secrets"]) == ("256", "1", "PLAIN", "TOKEN")
    assert await backend.inspect(row.ref) == row
    raw = await backend.raw(row.ref)
    assert raw["config"]["env"] == {"PLAIN": "***"}
    for shown in (everything(row), repr(raw)):
        assert CANARY not in shown
        assert VARIABLE not in shown
    kept = b"".join(path.read_bytes() for path in (used_home / "db").iterdir())
    assert CANARY.encode() in kept  # it is there to be shown, and is not


async def test_a_boot_that_failed_is_told_in_words(backend):
    (row,) = await backend.list()
    if kvm.problem() is None:
        pytest.skip("KVM works here, so the boot did not fail")
    assert row.status is Status.FAILED
    assert "kvm" in row.detail.lower()
    health = await backend.health()
    assert health.state is HealthState.UNAVAILABLE
    assert health.reason
    assert health.hint
    assert health.version == "0.7.11"


async def test_logs_and_events_are_read_without_a_machine(backend):
    (row,) = await backend.list()
    for follow in (False, True):
        async with asyncio.timeout(30):
            assert [batch async for batch in backend.logs(row.ref, LogQuery(follow=follow))] == []
    events = [one async for one in backend.guest_events(row.ref, since=None, follow=False)]
    assert any("entering VM" in one.detail for one in events)
    assert [one async for one in backend.egress_records(row.ref, since=None, follow=False)] == []
    with pytest.raises(NotFound):
        [batch async for batch in backend.logs(SandboxRef("microsandbox", "local", "local:99"), LogQuery())]


async def test_each_change_is_told_and_looking_is_none(backend, permit, tmp_path):
    events = []

    async def collect():
        async for event in backend.watch():
            events.append(event)  # noqa: PERF401 - read while it grows

    async def until(fits):
        async with asyncio.timeout(60):
            while not (events and fits(events[-1])):
                await asyncio.sleep(0.02)

    watching = asyncio.ensure_future(collect())
    await until(lambda event: isinstance(event, Listed))
    await asyncio.sleep(0.5)
    assert [type(event) for event in events] == [HealthChanged, Listed]
    spec = SandboxSpec("waits", image=local_root(tmp_path))
    ref = await backend.create(await permit("create"), spec, (), lambda _: None)
    await until(lambda event: isinstance(event, Changed) and event.sandbox.status is Status.CREATED)
    await backend.remove(await permit("remove"), ref, force=False)
    await until(lambda event: event == Removed(ref))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_sandbox_waits_for_its_first_start(empty, permit, tmp_path):
    spec = SandboxSpec("one", image=local_root(tmp_path), env={"A": "b"}, labels={"team": "α"}, command=("sleep", "9"))
    ref = await empty.create(await permit("create"), spec, (), lambda _: None)
    another = MicrosandboxBackend(tmp_path / "state")
    [found] = await another.list()
    assert (found.ref, found.status, found.spec, found.managed) == (ref, Status.CREATED, spec, True)
    with pytest.raises(Conflict):
        await another.create(await permit("create"), spec, (), lambda _: None)
    await another.rename(await permit("rename"), ref, "two")
    assert (await empty.inspect(ref)).spec.name == "two"
    changed = structs.replace(spec, name="two", labels={"k": "v"})
    await empty.update(await permit("update"), ref, changed)
    assert (await another.inspect(ref)).labels == {"k": "v"}
    with pytest.raises(Conflict):
        await empty.exec(await permit("exec"), Exec(ref, ("true",)), ())
    assert [batch async for batch in empty.logs(ref, LogQuery(follow=True))] == []
    await empty.stop(await permit("stop"), ref, 1)
    await empty.remove(await permit("remove"), ref, force=False)
    assert await another.list() == []
    with pytest.raises(NotFound):
        await empty.inspect(ref)


async def test_what_is_asked_of_one_that_was_never_started_is_no_unknown_sandbox(empty, permit, tmp_path, monkeypatch):
    spec = SandboxSpec("one", image=local_root(tmp_path), env={"PLAIN": VARIABLE})
    ref = await empty.create(await permit("create"), spec, (), lambda _: None)
    raw = await empty.raw(ref)
    assert (raw["id"], raw["spec"]["env"]) == (ref.id, {"PLAIN": "***"})
    assert [one.what async for one in empty.guest_events(ref, since=None, follow=False)] == ["create"]
    assert [one async for one in empty.guest_events(ref, since=time.time() + 9, follow=False)] == []
    assert [one async for one in empty.egress_records(ref, since=None, follow=False)] == []
    for asked in (
        empty.resume(await permit("resume"), ref),
        empty.take_snapshot(await permit("snapshot"), ref, "x", False),
        empty.kill(await permit("kill"), ref, "SIGKILL"),
    ):
        with pytest.raises(Conflict, match="one is not running: it is created"):
            await asked
    waits, first_start = asyncio.Event(), empty._looker.first_start

    async def told(module, ref):
        waits.set()
        return await first_start(module, ref)

    monkeypatch.setattr(empty._looker, "first_start", told)
    following = asyncio.ensure_future(collected(empty.egress_records(ref, since=None, follow=True)))
    await asyncio.wait_for(waits.wait(), 60)
    await empty.remove(await permit("remove"), ref, force=False)
    assert await asyncio.wait_for(following, 60) == []


async def collected(items):
    return [one async for one in items]


async def test_a_first_start_that_cannot_boot_tells_why_and_shows_it(backend, permit, tmp_path):
    if kvm.problem() is None:
        pytest.skip("KVM works here")
    spec = SandboxSpec("x", image=local_root(tmp_path), memory_mib=128)
    ref = await backend.create(await permit("create"), spec, (), lambda _: None)
    with pytest.raises(BackendError, match=r"did not boot: .*kvm") as caught:
        await backend.start(await permit("start"), ref, ())
    assert caught.value.hint
    row = await backend.inspect(ref)
    assert (row.ref, row.status, row.managed) == (ref, Status.FAILED, True)
    assert "kvm" in row.detail
    assert caught.value.hint in row.detail
    with pytest.raises(Unsupported, match="made of a folder"):
        await backend.take_snapshot(await permit("snapshot"), ref, "one", False)
    with pytest.raises(UsageError, match="not a name for a snapshot"):
        await backend.take_snapshot(await permit("snapshot"), ref, "a/b", False)
    await backend.remove(await permit("remove"), ref, force=False)
    assert ref not in [one.ref for one in await backend.list()]


@pytest.mark.parametrize("there", [True, False])
async def test_nobody_else_reads_where_the_runtime_keeps_secrets(empty, permit, tmp_path, there):
    """It makes all of it, and the database with a placeholder's value, for every user to read."""
    if kvm.problem() is None:
        pytest.skip("KVM works here")
    if there:
        sdk.home().mkdir(mode=0o755)
    secret = ResolvedSecret("TOKEN", CANARY, "placeholder", ("example.com",))
    spec = SandboxSpec("x", image=local_root(tmp_path), memory_mib=128, secrets=("TOKEN",), egress=("example.com",))
    ref = await empty.create(await permit("create"), spec, (secret,), lambda _: None)
    with pytest.raises(BackendError, match="did not boot"):
        await empty.start(await permit("start"), ref, (secret,))
    files = [path for path in (sdk.home() / "db").iterdir() if CANARY.encode() in path.read_bytes()]
    assert files
    assert any(path.stat().st_mode & 0o004 for path in files), "the runtime closes them by itself now"
    assert sdk.home().stat().st_mode & 0o077 == 0


async def test_what_is_wrong_with_a_spec_is_told_before_anything_is_made(empty, permit):
    assert "image" in empty.validate(SandboxSpec("x"))
    problems = empty.validate(SandboxSpec("x", image="dir:/no/such", cpus=0.5, workspace="/no/such"))
    assert problems.keys() == {"image", "cpus", "workspace"}
    with pytest.raises(InvalidSpec):
        await empty.create(await permit("create"), SandboxSpec("x", image="dir:/no/such"), (), lambda _: None)


async def test_what_it_cannot_do_has_its_reason(empty, permit):
    able = empty.capabilities()
    assert able.has(Capability.FORK)
    assert not able.has(Capability.COMMIT)
    assert "snapshot" in able.reason(Capability.COMMIT)
    with pytest.raises(Unsupported, match="network"):
        await empty.set_egress(
            await permit("update"), SandboxRef("microsandbox", "local", "x"), [EgressRule("example.com")]
        )


async def test_an_image_goes_out_and_comes_back_and_what_is_none_is_refused(empty, permit):
    async def chunks(data):
        yield data

    assert await empty.load_image(await permit("load-image"), chunks(archive())) == IMAGE
    saved = b"".join([chunk async for chunk in empty.save_image(await permit("save-image"), IMAGE)])
    pruned = await empty.prune_images(await permit("prune-images"), True)
    assert [name for one in pruned.images for name in one.names] == [IMAGE]
    assert await empty.images() == []
    assert await empty.load_image(await permit("load-image"), chunks(saved)) == IMAGE
    assert [(one.names, one.used_by) for one in await empty.images()] == [((IMAGE,), 0)]
    with pytest.raises(UsageError, match="no image that can be loaded") as caught:
        await empty.load_image(await permit("load-image"), chunks(b"no archive at all"))
    assert "docker save" in caught.value.hint


async def test_a_home_that_was_never_used_is_not_made(empty):
    assert await empty.list() == []
    await empty.health()
    assert not Path(os.environ["MSB_HOME"]).exists()


def test_nothing_imports_the_sdk_until_there_is_something_to_list(tmp_path):
    script = (
        "import asyncio, sys; from pathlib import Path;"
        "from sandbox_console.backends.microsandbox import MicrosandboxProvider as P;"
        "from sandbox_console.backends.base import BackendSettings as S;"
        f"b, = P.backends(S(Path({str(tmp_path)!r}))); asyncio.run(b.open()); b.capabilities(); asyncio.run(b.list());"
        "print('microsandbox' in sys.modules)"
    )
    environment = {**os.environ, "MSB_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=True)
    assert done.stdout == b"False\n"


def test_an_option_is_known_or_an_error():
    with pytest.raises(ConfigError, match="home"):
        MicrosandboxProvider.backends(BackendSettings(Path("/x"), {"home": "/y"}))
    with pytest.raises(ConfigError, match="list"):
        MicrosandboxProvider.backends(BackendSettings(Path("/x"), {"ca_certs": "/y"}))
    assert MicrosandboxProvider.backends(BackendSettings(Path("/x"), {"ca_certs": ["/y"]}))


def test_config_json_is_only_read_where_it_is_redacted():
    folder = Path("src/sandbox_console/backends/microsandbox")
    readers = [path.name for path in folder.glob("*.py") if "config_json" in path.read_text()]
    assert readers == ["translate.py"]


def test_no_second_sqlite_opens_the_runtimes_database():
    folder = Path("src/sandbox_console/backends/microsandbox")
    assert not [path.name for path in folder.glob("*.py") if "import sqlite3" in path.read_text()]


async def test_a_boot_is_tried_again_where_the_runtime_is_taken_for_an_old_one(monkeypatch):
    import microsandbox as module

    monkeypatch.setattr(lifecycle, "_AGAIN_S", (0.0, 0.0))
    known = False

    async def exists(module, name):
        return known

    async def started(name, *, detached):
        return "machine as it was left"

    monkeypatch.setattr(lifecycle.sdk, "exists", exists)
    monkeypatch.setattr(module.Sandbox, "start", started)
    old = module.UnsupportedError("selected msb runtime does not support that")
    taken = module.SandboxAlreadyExistsError("sandbox already exists")

    async def boot(*outcomes):
        left = list(outcomes)

        async def one():
            if isinstance(found := left.pop(0), Exception):
                raise found
            return found

        async def over():
            return "machine over a folder"

        return await lifecycle._insisted(module, "x", one, over)

    assert await boot(old, "machine") == "machine"
    assert await boot(taken) == "machine over a folder"
    assert await boot(old, taken) == "machine over a folder"
    known = True
    assert await boot(old) == "machine as it was left"
    with pytest.raises(Conflict):  # another's, not what an attempt of ours has left
        await boot(taken, "machine")
    with pytest.raises(Unsupported):
        await boot(module.UnsupportedError("something else"), "machine")


async def test_a_folder_that_a_start_has_left_is_in_nobodys_way(empty, permit, tmp_path):
    """The runtime knows no sandbox of it, and refuses the name all the same (0.7.11)."""
    if kvm.problem() is None:
        pytest.skip("KVM works here")
    spec = SandboxSpec("left", image=local_root(tmp_path), memory_mib=128)
    ref = await empty.create(await permit("create"), spec, (), lambda _: None)
    (Path(os.environ["MSB_HOME"]) / "sandboxes" / "left").mkdir(parents=True)
    with pytest.raises(BackendError, match="did not boot"):
        await empty.start(await permit("start"), ref, ())
    assert (await empty.inspect(ref)).status is Status.FAILED
    await empty.remove(await permit("remove"), ref, force=True)
