"""The backend for A3S Box: generations, errors by code, times, and programs that lie, hang or flood."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.neighbours.a3s.bridge_stand_in import IMAGE, Box, running
from tests.support.require import requires

from sandbox_console.backends.a3s import A3sProvider, bridge
from sandbox_console.backends.a3s.logs import nanoseconds
from sandbox_console.backends.base import BackendSettings
from sandbox_console.errors import (
    BackendError,
    BackendUnreachable,
    ConfigError,
    Conflict,
    ConsoleError,
    NotFound,
    UsageError,
)
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.model.action import Exec
from sandbox_console.model.event import HealthChanged
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance.rig import eventually, resident_mib
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
ASKED = {"image": IMAGE, "isolation": "microvm", "labels": {"team": "x"}, "env": {}, "name": "web"}
REF = SandboxRef("a3s", "lab", "box-a")


@pytest.fixture
def a3s(tmp_path):
    (tmp_path / "a3s").mkdir()
    with running(tmp_path / "a3s") as (stand, binary):
        stand.binary = str(binary)
        yield stand


def backend_of(binary: str, folder: Path, **more):
    options = {"runtimes": {"lab": {"binary": binary, **more}}}
    [backend] = A3sProvider.backends(BackendSettings(folder / "state", options))
    return backend


@pytest.fixture
async def backend(a3s, tmp_path):
    made = backend_of(a3s.binary, tmp_path)
    yield made
    await made.close()


def verbs(a3s) -> list[str]:
    reads = ("sandbox_list", "sandbox_get", "sandbox_inspect", "sdk_capabilities")
    return [one["operation"] for one in a3s.asked if one["operation"] not in reads]


async def test_a_row_tells_what_the_runtime_tells(a3s, backend):
    for status in ("running", "stopped", "failed", "starting", "killing", "odd"):
        box = Box(f"box-{status}", {**ASKED, "name": status}, a3s.home, status=status, exit=3)
        a3s.boxes[box.id] = box
    rows = {one.name: one for one in await backend.list()}
    assert {name: row.status for name, row in rows.items()} == {
        "running": Status.RUNNING, "stopped": Status.EXITED, "failed": Status.FAILED, "starting": Status.STARTING,
        "killing": Status.STOPPING, "odd": Status.UNKNOWN,
    }  # fmt: skip
    assert rows["stopped"].exit.code == 3
    one = rows["running"]
    assert (one.image, one.managed, one.maker, dict(one.labels)) == (IMAGE, False, "a3s", {"team": "x"})
    facts = {fact.field: fact.value for fact in one.effective}
    assert (facts["isolation"], facts["memory_mib"], facts["egress"]) == ("microvm", "512", "unknown")
    assert "stand-in" in (await backend.diagnose())[0].text


async def test_two_thousand_come_in_one_answer(a3s, backend):
    for number in range(2000):
        a3s.boxes[f"x{number}"] = Box(f"x{number}", {**ASKED, "name": f"n{number}"}, a3s.home)
    a3s.asked.clear()
    assert len(await backend.list()) == 2000
    assert len([one for one in a3s.asked if one["operation"] == "sandbox_list"]) == 1


@requires("bubblewrap")
@requires("user")
async def test_a_generation_that_another_program_started_is_not_touched(a3s, backend, permit):
    spec = SandboxSpec("web", image=IMAGE)
    ref = await backend.create(await permit("create"), spec, (), lambda _: None)
    await backend.start(await permit("start"), ref, ())
    [box] = a3s.boxes.values()
    box.generation += 1  # as a restart by another program does
    a3s.asked.clear()
    calls = [
        backend.stop(await permit("stop"), ref, 1.0),
        backend.pause(await permit("pause"), ref),
        backend.remove(await permit("remove"), ref, True),
        backend.take_snapshot(await permit("snapshot"), ref, "kept", False),
        backend.list_dir(ref, "/"),
    ]
    for call in calls:
        with pytest.raises(Conflict, match="generation"):
            await call
    process = await backend.exec(await permit("exec"), Exec(ref, ("true",)), ())
    with pytest.raises(Conflict, match="generation"):
        await process.wait()
    assert set(verbs(a3s)) <= {"command_run", "filesystem_snapshot_list"}, "the runtime refused these itself"
    assert (box.status, box.id in a3s.boxes) == ("running", True)
    await backend.start(await permit("start"), ref, ())  # takes the present one over
    process = await backend.exec(await permit("exec"), Exec(ref, ("echo", "mine")), ())
    assert (await process.wait()).code == 0
    await backend.remove(await permit("remove"), ref, True)
    assert not a3s.boxes


@requires("bubblewrap")
@requires("user")
async def test_one_that_was_made_anew_under_its_name_is_anothers(a3s, backend, permit):
    ref = await backend.create(await permit("create"), SandboxSpec("web", image=IMAGE), (), lambda _: None)
    await backend.start(await permit("start"), ref, ())
    [old] = a3s.boxes.values()
    old.end(137)
    a3s.boxes = {"box-b": Box("box-b", {**ASKED, "name": "web"}, a3s.home)}
    rows = {one.ref: one for one in await backend.list()}
    assert rows[ref].status is Status.LOST
    assert not rows[SandboxRef("a3s", "lab", "box-b")].managed
    a3s.asked.clear()
    await backend.remove(await permit("remove"), ref, True)
    assert (verbs(a3s), [*a3s.boxes]) == ([], ["box-b"])


async def test_nothing_of_anothers_is_touched_if_it_changes_within_a_verb(a3s, backend, permit, monkeypatch):
    box = a3s.boxes["box-a"] = Box("box-a", dict(ASKED), a3s.home)

    def inspect(asked, before=a3s.sandbox_inspect):
        told = before(asked)
        box.generation += 1  # right after the console looked
        return told

    monkeypatch.setattr(a3s, "sandbox_inspect", inspect)
    with pytest.raises(Conflict, match="generation"):
        await backend.stop(await permit("stop"), REF, 1.0)
    assert verbs(a3s) == []


async def test_limits_are_asked_for_by_operation(a3s, backend, permit):
    told = {"operation": "sandbox_update_resources"}
    box = a3s.boxes["box-a"] = Box("box-a", {**ASKED, "cpus": 2}, a3s.home)
    ref = await backend.create(await permit("create"), SandboxSpec("mine", image=IMAGE), (), lambda _: None)
    entry = await backend._entry(ref)
    await backend._ledger.put(entry, place="box-a", started_at=1.0, more={"generation": "1"})
    changed = SandboxSpec("mine", image=IMAGE, cpus=0.5, pids=9)
    await backend.update(await permit("update"), ref, changed)
    assert box.resources == [{"pids_limit": 9, "cpu_quota": 50_000, "cpu_period": 100_000}]
    [asked] = [one for one in a3s.asked if one["operation"] == told["operation"]]
    assert asked["operation_id"]
    assert (await backend.inspect(ref)).spec == changed


async def test_nanoseconds_are_exact(a3s, backend):
    box = a3s.boxes["box-a"] = Box("box-a", dict(ASKED), a3s.home)
    at = 1_785_000_000_123_456_789  # no float has it
    box.events = [{"sequence": 1, "timestamp_unix_ns": str(at), "process_id": None, "kind": "container-started",
                   "attributes": {}}]  # fmt: skip
    [event] = [one async for one in backend.guest_events(REF, since=None, follow=False)]
    assert (event.what, event.at) == ("start", at / 1e9)
    box.events[0]["timestamp_unix_ns"] = at
    with pytest.raises(BackendUnreachable, match="non-string"):
        [one async for one in backend.guest_events(REF, since=None, follow=False)]
    assert nanoseconds("2026-07-25T12:00:00.123456789Z") == 1_784_980_800_123_456_789
    assert nanoseconds("9999999-01-01") is nanoseconds("") is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("not_found", NotFound), ("conflict", Conflict), ("invalid_request", UsageError),
        ("unavailable", BackendUnreachable), ("runtime_error", BackendError), ("a new one", BackendError),
    ],
)  # fmt: skip
async def test_errors_are_told_by_code(a3s, backend, code, kind):
    a3s.answer = json.dumps({"protocol_version": 4, "ok": False, "error": {"code": code, "message": "canary"}}).encode()
    with pytest.raises(kind, match="canary") as caught:
        await backend._client.inspected("x")
    assert type(caught.value) is kind
    assert "lab" in caught.value.message


def row(**changes) -> bytes:
    found = {**Box("x", ASKED, Path("/")).summary(), **changes}
    found = {key: value for key, value in found.items() if value is not ...}
    return json.dumps({"protocol_version": 4, "ok": True, "result": {"sandboxes": [found]}}).encode()


@pytest.mark.parametrize(
    "answer",
    [
        b"{", b"7", b'{"protocol_version": 3, "ok": true, "result": {}}', b'{"protocol_version": 4, "ok": true}',
        b'{"protocol_version": 4, "ok": true, "result": {"sandboxes": 7}}', row(name=...), row(cpus="2"),
        row(labels={"a": 1}), b"[" * 100_000, b"\xff\xfe", b"<html>a proxy's page</html>",
    ],
    ids=["cut", "number", "version", "no result", "no list", "no name", "text", "label", "deep", "bytes", "page"],
)  # fmt: skip
async def test_an_answer_that_cannot_be_read_is_an_error_that_names_the_runtime(a3s, backend, answer):
    await backend._client._bridge.request({"operation": "sdk_capabilities"})
    a3s.answer = answer
    with pytest.raises(BackendUnreachable) as caught:
        await backend.list()
    assert "lab" in caught.value.message
    health = await backend.health()
    assert (health.ok, health.silent) == (False, True)


PROGRAMS = {
    "100 MB": "import sys\nfor _ in range(1600): sys.stdout.write(' ' * 65536)",
    "endless": "import sys\nwhile True: sys.stdout.write(' ' * 65536)",
    "noise": "import sys\nwhile True: sys.stderr.write(' ' * 65536)",
    "frozen": "import time; time.sleep(3600)",
    "deaf": "import os, time; os.close(1); os.close(2); time.sleep(3600)",
    "child": "import subprocess; subprocess.run(['sleep', '3601'])",
    "half": "print('{\"protocol_version\": 4, ', end='')",
    "usage": "import sys; sys.exit('unknown command: sdk-bridge')",
    "killed": "import os; os.kill(os.getpid(), 9)",
}


@pytest.mark.parametrize("mode", PROGRAMS)
async def test_a_program_that_misbehaves_is_named_and_leaves_nothing(tmp_path, monkeypatch, mode):
    monkeypatch.setattr(bridge, "_LIMITS_S", dict.fromkeys(bridge._LIMITS_S, 1.0))
    program = tmp_path / "a3s-box"
    program.write_text(f"#!{sys.executable} -ISE\n{PROGRAMS[mode]}\n")
    program.chmod(0o755)
    backend = backend_of(str(program), tmp_path)
    before, began = resident_mib(), time.monotonic()
    with pytest.raises(BackendUnreachable, match="lab"):
        await backend.list()
    assert not (await backend.health()).ok
    assert time.monotonic() - began < 60
    assert resident_mib() - before < 64, "the answer was kept"

    async def gone() -> bool:  # a child is killed, and nobody here can wait for it
        return not [
            one
            for one in Path("/proc").glob("[0-9]*/cmdline")
            if "sleep\x003601" in read(one) or str(program) in read(one)
        ]

    await eventually(gone, "a process lives on")


def read(path: Path) -> str:
    with suppress(OSError):
        return path.read_bytes().decode("utf-8", "replace")
    return ""


async def test_a_watch_of_a_frozen_one_tells_that_it_is_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(bridge, "_LIMITS_S", dict.fromkeys(bridge._LIMITS_S, 0.5))
    program = tmp_path / "a3s-box"
    program.write_text("#!/bin/sh\nexec sleep 3602\n")
    program.chmod(0o755)
    event = await anext(aiter(backend_of(str(program), tmp_path).watch()))
    assert isinstance(event, HealthChanged)
    assert (event.health.ok, event.health.silent) == (False, True)


@pytest.mark.parametrize("binary", ["/nowhere/a3s-box", "no-such-program", "/etc/passwd"])
async def test_a_program_that_is_not_there_is_told(tmp_path, binary):
    with pytest.raises(BackendUnreachable, match="cannot be started") as caught:
        await backend_of(binary, tmp_path).list()
    assert "binary =" in caught.value.hint
    assert not isinstance(caught.value, bridge.Silent)


def test_it_is_off_until_it_is_configured_and_within_itself(tmp_path, monkeypatch):
    assert A3sProvider.backends(BackendSettings(tmp_path, {})) == []
    monkeypatch.setenv("SANDBOX_CONSOLE_WITHIN_A3S", "1")
    assert A3sProvider.backends(BackendSettings(tmp_path, {"runtimes": {"lab": {}}})) == []


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"binari": "x"}, "no option 'binari'"),
        ({"isolation": "none"}, "isolation"),
        ({"lifetime_s": 0}, "lifetime_s"),
        ("x", "Expected"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(tmp_path, table, says):
    with pytest.raises(ConfigError, match=says):
        A3sProvider.backends(BackendSettings(tmp_path, {"runtimes": {"lab": table}}))


async def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "a3s_box", None)
    with pytest.raises(ConsoleError, match="not installed") as caught:
        await backend_of("a3s-box", tmp_path).list()
    assert "[a3s]" in caught.value.hint
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "way", ["in a workspace", "by a link in a workspace", "home in a workspace", "others may write"]
)
async def test_a_program_that_somebody_else_could_replace_is_not_started(tmp_path, way):
    (work := tmp_path / "ws").mkdir()
    program = (work if way == "in a workspace" else tmp_path) / "a3s-box"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o777 if way == "others may write" else 0o755)
    (work / "link").symlink_to(program)
    table = {"binary": str(work / "link" if way == "by a link in a workspace" else program)}
    if way == "home in a workspace":
        table["home"] = str(work)
    settings = BackendSettings(
        tmp_path / "state", {"runtimes": {"lab": table}}, guests=lambda: GuestFolders.of([str(work)])
    )
    [made] = A3sProvider.backends(settings)
    with pytest.raises(ConfigError, match="is not used"):
        await made.list()
    health = await made.health()
    assert (health.ok, "is not used" in health.reason) == (False, True)
    assert not (tmp_path / "started").exists()
    await made.close()
