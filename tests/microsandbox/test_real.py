"""Real microVMs: what the conformance suite does not ask, in as few boots as can be (one takes 5 s emulated)."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import socket
import stat
import tarfile
import time
from pathlib import Path

import pytest
from msgspec import structs
from tests.support.microimage import IMAGE, archive, layer_with
from tests.support.micronet import ADDRESS, World
from tests.support.microregistry import Registry
from tests.support.microvms import console, folder, make, microsandbox_home, permit, run, until
from tests.support.require import requires

from sandbox_console.backends.microsandbox import boots, sdk
from sandbox_console.errors import BackendError, Conflict, NotFound, Unsupported
from sandbox_console.model.action import Exec
from sandbox_console.model.egress import EgressRule
from sandbox_console.model.event import Changed, Listed
from sandbox_console.model.sandbox import Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

__all__ = ["folder", "make", "microsandbox_home", "permit"]

pytestmark = requires("microsandbox")

CURL = "sandbox-console-test/curl:1"
VALUE = "s3cr3t-of-the-tests-4711"


async def load(backend, permit, name, layer):
    async def chunks():
        yield archive(name, layer)

    assert await backend.load_image(await permit("load-image"), chunks()) == name


@pytest.mark.skipif(
    not Path("/rw/msb").is_dir(), reason="it takes a public address onto the loopback: only in a machine of its own"
)
async def test_egress_is_allowed_and_denied_and_secrets_reach_only_their_hosts(folder, permit, make):
    world = World(folder, ("api.acme.org", "other.acme.org", "evil.example.com"))
    world.start()
    backend = console(folder, ca_certs=[str(world.authority)])
    await load(backend, permit, CURL, layer_with("curl"))
    secret = ResolvedSecret("TOKEN", VALUE, "placeholder", ("api.acme.org",))
    await tls_goes_through_unread(backend, permit, make, world)
    spec = SandboxSpec("net", image=CURL, memory_mib=192, egress=("api.acme.org", "other.acme.org"), secrets=("TOKEN",))
    ref = await make(backend, spec, (secret,))

    async def fetch(url, *options):
        return (await run(backend, permit, ref, f"curl -s -m 60 {' '.join(options)} {url}"))[1]

    assert '"host": "api.acme.org"' in await fetch("https://api.acme.org/")
    assert '"host"' not in await fetch("https://evil.example.com/")
    assert '"host"' not in await fetch("http://evil.example.com/")
    assert not [one for one in world.requests if one["host"] == "evil.example.com"]
    header = '-H "Authorization: Bearer $TOKEN"'
    await fetch("https://api.acme.org/substituted", header)
    await fetch("https://other.acme.org/leak", header)
    sent = {one["path"]: one.get("authorization") for one in world.requests}
    assert sent["/substituted"] == f"Bearer {VALUE}"
    assert "/leak" not in sent
    assert VALUE not in (await run(backend, permit, ref, "env; cat /proc/1/environ"))[1]
    [record] = [one async for one in backend.egress_records(ref, since=None, follow=False)]
    assert (record.host, record.allowed, record.reason, record.rule) == (
        "other.acme.org",
        False,
        "secret_violation",
        "TOKEN",
    )
    await the_feed_goes_on(backend, fetch, ref, header)
    said = [one.detail async for one in backend.guest_events(ref, since=None, follow=False)]
    # Why the feed has violations alone: of what it refused the runtime's log says not a word.
    assert not [line for line in said if "evil.example.com" in line]
    assert (await backend.probe_egress(await permit("probe"), ref, "api.acme.org", 443)).allowed
    assert not (await backend.probe_egress(await permit("probe"), ref, "evil.example.com", 443)).allowed
    for shown in (await backend.list(), await backend.inspect(ref), await backend.raw(ref)):
        assert VALUE not in repr(shown)
    world.stop()


async def tls_goes_through_unread(backend, permit, make, world):
    """Without a secret to substitute: an allowed host is reached over TLS, another one not under its address."""
    ref = await make(backend, SandboxSpec("plain", image=CURL, memory_mib=192, egress=("api.acme.org",)))
    evil = "evil.example.com"
    script = (
        "curl -sk -m 60 https://api.acme.org/unread; "
        f"curl -sk -m 20 --resolve {evil}:443:{ADDRESS} https://{evil}/by-name; "
        f"curl -s -m 20 -H 'Host: {evil}' http://api.acme.org/by-header"
    )
    await run(backend, permit, ref, script)
    assert [one["path"] for one in world.requests] == ["/unread"]


async def the_feed_goes_on(backend, fetch, ref, header):
    """A violation comes to whoever follows the feed."""
    records = []

    async def collect():
        async for record in backend.egress_records(ref, since=None, follow=True):
            records.append(record)  # noqa: PERF401 - read while it grows

    following = asyncio.ensure_future(collect())

    async def two():
        return len(records) == 2

    await fetch("https://other.acme.org/again", header)
    await until(two, "the second violation was not told")
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert {(one.host, one.rule) for one in records} == {("other.acme.org", "TOKEN")}


async def test_a_snapshot_is_restored_and_a_running_one_forked(folder, permit, make):
    backend = console(folder)
    (folder / "work").mkdir()
    surroundings = {"env": {"PLACE": "x y"}, "workdir": "/workspace", "workspace": str(folder / "work")}
    spec = SandboxSpec("idle", image=IMAGE, memory_mib=128, labels={"team": "x"}, ports=("7070",), **surroundings)
    ref = await make(backend, spec)
    await run(backend, permit, ref, "echo kept >/root/file; echo soft >/dev/shm/memory; sync")
    taken = await backend.take_snapshot(await permit("snapshot"), ref, "one", False)
    assert (taken.name, taken.of, taken.full) == ("one", "idle", False)
    with pytest.raises(Conflict):
        await backend.take_snapshot(await permit("snapshot"), ref, "one", False)
    forked = await backend.fork(await permit("fork"), ref, "fork", ())
    make.made.append((backend, forked))
    restored = await backend.restore_snapshot(await permit("restore"), "one", "again", ())
    make.made.append((backend, restored))
    for copy, name in ((forked, "fork"), (restored, "again")):
        shown = await backend.inspect(copy)
        assert (shown.name, shown.status, shown.labels) == (name, Status.RUNNING, {"team": "x"})
        assert (await run(backend, permit, copy, "cat /root/file; pwd; echo $PLACE"))[1] == "kept\n/workspace\nx y\n"
        raw = await backend.raw(copy)
        assert raw["config"]["network"]["policy"]["default_egress"] == "deny"
    everywhere = [place for one in (ref, forked, restored) for place in await places(backend, one)]
    assert len({place for place in everywhere if place.startswith("127.0.0.1:")}) == 3, everywhere
    assert (await run(backend, permit, forked, "cat /dev/shm/memory"))[1] == "soft\n"
    assert (await run(backend, permit, restored, "cat /dev/shm/memory"))[0] != 0
    await backend.remove_snapshot(await permit("remove-snapshot"), "one")
    assert await backend.snapshots() == []


async def test_it_grows_live_is_found_by_the_next_console_and_a_crash_is_shown(folder, permit, make, record_property):
    backend = console(folder)
    (shared := folder / "work").mkdir()
    command = ("sh", "-c", "echo up; sleep 1000")
    spec = SandboxSpec("web", image=IMAGE, memory_mib=128, command=command, workspace=str(shared))
    ref = await make(backend, spec)
    await run(backend, permit, ref, "cd /workspace; echo x >tool; chown 7:8 tool; chmod 4755 tool; ln -s tool link")
    # As another program of this host sees it: with its mode, but no setuid, and a link as a link.
    assert stat.filemode((shared / "tool").stat().st_mode) == "-rwxr-xr-x"
    assert (shared / "link").readlink() == Path("tool")
    assert await backend.out_of_bounds(ref, structs.replace(spec, memory_mib=256)) == {}
    beyond = await backend.out_of_bounds(ref, structs.replace(spec, memory_mib=8192))
    assert beyond == {"memory_mib": "it was made to grow to 512 MiB while it runs: stop it first"}
    await backend.update(await permit("update"), ref, structs.replace(spec, memory_mib=256))

    async def grown():
        total = (await run(backend, permit, ref, "grep MemTotal /proc/meminfo"))[1].split()[1]
        return int(total) > 160 * 1024

    await until(grown, "the guest did not get more memory")
    below = structs.replace(spec, memory_mib=64)
    [why] = (await backend.out_of_bounds(ref, below)).values()
    assert why == "it booted with 128 MiB, and gives nothing of that back while it runs: stop it first"
    with pytest.raises(Conflict, match="booted with 128 MiB"):
        await backend.update(await permit("update"), ref, below)
    with pytest.raises(Conflict, match="memory requires restart"):
        await backend.update(await permit("update"), ref, structs.replace(spec, memory_mib=8192))
    with pytest.raises(Conflict, match="main process runs"):
        await backend.fork(await permit("fork"), ref, "copy", ())
    with pytest.raises(Unsupported, match="cannot change the network"):
        await backend.set_egress(await permit("update"), ref, [EgressRule("example.com")])
    assert (await backend.health()).ok
    assert {one.what: one.state for one in await backend.diagnose()} == dict.fromkeys(
        ("kvm", "runtime", "last boot", "disk"), "ok"
    )
    assert "sleep 1000" in [one.command for one in await backend.processes(ref)]
    await copied_in_and_out(backend, permit, ref)
    again = console(folder)
    [found] = await again.list()
    assert (found.ref, found.status, found.spec.memory_mib) == (ref, Status.RUNNING, 256)
    assert [one async for one in again.guest_events(ref, since=None, follow=False)]
    events = []

    async def collect():
        async for event in again.watch():
            events.append(event)  # noqa: PERF401 - read while it grows

    watching = asyncio.ensure_future(collect())

    async def listed():
        return any(isinstance(one, Listed) for one in events)

    async def crashed():
        return any(isinstance(one, Changed) and one.sandbox.status is Status.LOST for one in events)

    await until(listed, "no list came")
    began = time.monotonic()
    os.kill(found.pid, signal.SIGKILL)
    await until(crashed, "the crash was not told")
    record_property("seconds until a crash was told", round(time.monotonic() - began, 2))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert (await again.inspect(ref)).detail.startswith("crashed: ")


async def test_watching_looks_at_nothing_while_nothing_happens(folder, permit, make, monkeypatch):
    backend = console(folder)
    await make(backend, SandboxSpec("quiet", image=IMAGE, memory_mib=128, command=("sleep", "1000")))
    looks, events, look = [], [], backend._looker.list

    async def counted():
        looks.append(time.monotonic())
        return await look()

    monkeypatch.setattr(backend._looker, "list", counted)

    async def collect():
        async for event in backend.watch():
            events.append(event)  # noqa: PERF401 - read while it grows

    watching = asyncio.ensure_future(collect())

    async def settled():
        return bool(looks) and time.monotonic() - looks[-1] > 3 and any(isinstance(one, Listed) for one in events)

    await until(settled, f"it looks again and again: {len(looks)} times")
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def test_a_console_that_comes_later_shuts_down_what_ended_unwatched(folder, permit, make):
    backend = console(folder)
    ref = await make(backend, SandboxSpec("short", image=IMAGE, memory_mib=128, command=("sh", "-c", "echo done")))

    async def ended():
        return (await backend.inspect(ref)).status is Status.EXITED

    await until(ended, "its main process did not end")
    assert boots.processes(), "nobody watched, and yet its microVM is gone"

    async def collect():
        async for _ in backend.watch():
            pass

    watching = asyncio.ensure_future(collect())

    async def gone():
        return not boots.processes()

    await until(gone, "its microVM was not shut down")
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    found = await backend.inspect(ref)
    assert (found.status, found.exit.code) == (Status.EXITED, 0)


async def test_a_start_that_comes_to_nothing_leaves_nothing_running(folder, permit, make):
    backend = console(folder)
    spec = SandboxSpec("nothing", image=IMAGE, memory_mib=128, command=("no-such-program",))
    ref = await backend.create(await permit("create"), spec, (), lambda _: None)
    make.made.append((backend, ref))
    before = set(boots.processes())
    starting = asyncio.ensure_future(backend.start(await permit("start"), ref, ()))

    async def begun():
        return set(boots.processes()) > before

    await until(begun, "no microVM was begun")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert (await backend.inspect(ref)).status is Status.CREATED
    with pytest.raises(BackendError, match="cannot be run"):
        await backend.start(await permit("start"), ref, ())
    found = await backend.inspect(ref)
    assert (found.status, "no-such-program" in found.detail) == (Status.FAILED, True)

    async def gone():
        return set(boots.processes()) <= before

    await until(gone, "its microVM runs on")


async def copied_in_and_out(backend, permit, ref):
    data = os.urandom(300_000)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo("in/file")
        info.size, info.mode = len(data), 0o640
        tar.addfile(info, io.BytesIO(data))

    async def chunks():
        yield buffer.getvalue()

    await backend.upload(await permit("upload"), ref, "/tmp", chunks())
    assert [(one.name, one.size) for one in await backend.list_dir(ref, "/tmp/in")] == [("file", len(data))]
    out = b"".join([chunk async for chunk in backend.download(await permit("download"), ref, "/tmp/in")])
    with tarfile.open(fileobj=io.BytesIO(out)) as tar:
        assert tar.extractfile("in/file").read() == data


async def test_images_are_listed_saved_and_removed(folder, permit):
    backend = console(folder)
    await load(backend, permit, "sandbox-console-test/other:1", None)
    names = {name for image in await backend.images() for name in image.names}
    assert {IMAGE, "sandbox-console-test/other:1"} <= names
    saved = b"".join([chunk async for chunk in backend.save_image(await permit("save-image"), IMAGE)])
    with tarfile.open(fileobj=io.BytesIO(saved)) as tar:
        assert "manifest.json" in tar.getnames()
    await backend.remove_image(await permit("remove-image"), "sandbox-console-test/other:1", force=False)
    names = {name for image in await backend.images() for name in image.names}
    assert "sandbox-console-test/other:1" not in names
    assert sdk.version()


async def test_an_image_is_pulled_with_progress(folder, permit):
    registry = Registry(
        layer_with("curl", "openssl"), "made/here"
    )  # a layer of no other test's: a known one moves nothing
    backend = console(folder, insecure_registries=[registry.address])
    name, said = f"{registry.address}/made/here:1", []
    registry.start()
    try:
        digest = await backend.pull_image(await permit("pull-image"), name, said.append)
        assert digest.startswith("sha256:")
        assert any("MiB" in text for text in said), said
        assert name in await names(backend)
        assert await backend.list() == []
        await backend.remove_image(await permit("remove-image"), name, force=False)
        with pytest.raises(NotFound):
            await backend.pull_image(await permit("pull-image"), f"{registry.address}/not/there:1", said.append)
    finally:
        registry.stop()


async def test_a_pull_can_be_given_up(folder, permit):
    registry = Registry(layer_with("openssl"), "made/slowly")
    backend = console(folder, insecure_registries=[registry.address])
    name = f"{registry.address}/made/slowly:1"
    registry.release.clear()
    registry.start()
    try:
        pulling = asyncio.ensure_future(backend.pull_image(await permit("pull-image"), name, lambda _: None))

        async def begun():
            assert not pulling.done(), (pulling.exception(), registry.asked)
            return any(path.endswith(registry.layer) for path in registry.asked)

        await until(begun, "the layer was not asked for")
        pulling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pulling
        assert name not in await names(backend)
        assert await backend.list() == []
    finally:
        registry.stop()


async def names(backend):
    return {name for image in await backend.images() for name in image.names}


async def test_time_limits_end_it_and_are_its_reason(folder, permit, make):
    backend = console(folder)
    command = ("sleep", "1000")
    longest = await make(
        backend, SandboxSpec("longest", image=IMAGE, memory_mib=128, command=command, max_duration_s=30)
    )
    idle = await make(backend, SandboxSpec("idle", image=IMAGE, memory_mib=128, idle_timeout_s=3))

    async def ended():
        return all([not (await backend.inspect(ref)).status.live for ref in (longest, idle)])

    await until(ended, "a time limit did not end it")
    for ref, words in ((longest, "max_duration"), (idle, "idle_timeout")):
        shown = await backend.inspect(ref)
        assert (shown.status, words in shown.detail) == (Status.EXITED, True), shown


GREETER = ("sh", "-c", "while :; do echo greeting | nc -l -p 7070; done")


async def test_published_ports_are_had_or_refused_and_a_copy_has_others(folder, permit, make):
    backend = console(folder)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        number = sock.getsockname()[1]
    spec = SandboxSpec("web", image=IMAGE, memory_mib=128, ports=(f"{number}:7070", "7070"))
    ref = await make(backend, spec)
    greeter = await backend.exec(await permit("exec"), Exec(ref, GREETER), ())
    fixed, free = await places(backend, ref)
    assert fixed == f"127.0.0.1:{number}"
    await until(lambda: greets(fixed), "nobody answers at the place that was asked for")
    await until(lambda: greets(free), "nobody answers at the free one")
    copy = await backend.fork(await permit("fork"), ref, "copy", ())
    make.made.append((backend, copy))
    others = await places(backend, copy)
    assert len({fixed, free, *others}) == 4
    await until(lambda: greets(others[0]), "the copy's server, which it has with the memory, does not answer")
    await backend.remove(await permit("remove"), copy, force=True)
    make.made.pop()
    await greeter.kill()
    await backend.stop(await permit("stop"), ref, 0.2)
    assert await places(backend, ref) == ["not published"]
    with listening(fixed), pytest.raises(Conflict, match=f"{number} is taken by another program of the host"):
        # The runtime itself would boot without a word, and nobody would listen there.
        await backend.start(await permit("start"), ref, ())
    assert (await backend.inspect(ref)).status is Status.EXITED
    with listening(free):
        await backend.start(await permit("start"), ref, ())
        again = await places(backend, ref)
    assert again[0] == fixed
    assert again[1] not in (fixed, free)


async def places(backend, ref):
    """Where the sandbox's one port is."""
    [told] = [fact.value for fact in (await backend.inspect(ref)).effective if fact.field == "port 7070/tcp"]
    return told.split(", ")


async def greets(place):
    address, _, number = place.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(address, int(number))
        async with asyncio.timeout(10):
            said = await reader.read(100)
        writer.close()
    except (OSError, TimeoutError):
        return False
    return said == b"greeting\n"


def listening(place):
    address, _, number = place.rpartition(":")
    return socket.create_server((address, int(number)))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="it takes a host of two processors")
async def test_cpus_are_added_and_taken_while_it_runs(folder, permit, make):
    backend = console(folder)
    spec = SandboxSpec("web", image=IMAGE, memory_mib=128, cpus=1)
    ref = await make(backend, spec)

    async def has(number):
        return (await run(backend, permit, ref, "nproc"))[1] == f"{number}\n"

    for number in (2, 1):
        assert await backend.out_of_bounds(ref, structs.replace(spec, cpus=number)) == {}
        await backend.update(await permit("update"), ref, structs.replace(spec, cpus=number))
        await until(lambda number=number: has(number), f"the guest does not have {number} CPUs")
        shown = await backend.inspect(ref)
        assert (shown.spec.cpus, shown.status) == (number, Status.RUNNING)
