from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest
from msgspec import structs
from tests.service.conftest import REF

from sandbox_console.errors import (
    AuditUnavailable,
    BackendError,
    BackendUnreachable,
    Conflict,
    Denied,
    InvalidSpec,
    NeedsConfirmation,
    NotFound,
    SecretError,
    Unsupported,
)
from sandbox_console.model.action import Create, Exec, Kill, OpenShell, Pause, Remove, Restart, Stop, Update
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.testing.fake_backend import FakeBackend

VALUE = "hunter2-is-the-value"


async def outcomes(console):
    return [(e.attempt.action, e.outcome) for e in reversed(await console.history(AuditQuery()))]


async def test_the_attempt_is_committed_before_the_effect_and_has_no_outcome_yet(home, db, box):
    seen = []

    class Looking(FakeBackend):
        async def stop(self, permit, ref, grace_s):
            rows = sqlite3.connect(db).execute("SELECT seq, kind, action FROM record").fetchall()
            seen.append((permit.audit_id, rows))
            await super().stop(permit, ref, grace_s)

    async with open_console(Config(), backends=[Looking([box])]) as console:
        result = await console.perform(Stop(REF)).result()
        assert await outcomes(console) == [("stop", "ok")]
    assert seen == [(result.audit_id, [(result.audit_id, "attempt", "stop")])]


@pytest.mark.parametrize(
    ("faults", "action", "error", "outcome"),
    [
        ({"stop": Conflict("no")}, Stop(REF), Conflict, "failed"),
        ({"stop": RuntimeError("bug")}, Stop(REF), BackendError, "failed"),
        ({"inspect": RuntimeError("bug")}, Stop(REF), BackendError, "failed"),
        ({"pause": Unsupported("no")}, Pause(REF), Unsupported, "unsupported"),
        ({}, Stop(SandboxRef("fake", "local", "gone")), NotFound, "failed"),
        ({}, Exec(REF, ()), InvalidSpec, "failed"),
        ({}, Exec(REF, ("a\0b",)), InvalidSpec, "failed"),
        ({}, Kill(REF, "SIGNONE"), Exception, "failed"),
        ({}, Create(SandboxSpec("bad name"), "fake", "local"), InvalidSpec, "failed"),
    ],
)
async def test_whatever_goes_wrong_leaves_one_row_with_its_outcome(home, box, faults, action, error, outcome):
    async with open_console(Config(), backends=[FakeBackend([box], faults=faults)]) as console:
        with pytest.raises(error) as caught:
            await console.perform(action).result()
        assert await outcomes(console) == [(action.verb, outcome)]
        [entry] = await console.history(AuditQuery())
        assert caught.value.audit_id == entry.attempt.seq
        assert (await console.verify()).open_attempts == 0


async def test_an_exec_past_its_time_is_124_and_timed_out(home, box):
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        result = await console.perform(Exec(REF, ("sleep", "60"), timeout_s=0.05)).result()
        assert (result.exit_code, result.timed_out) == (124, True)
        assert await outcomes(console) == [("exec", "timed_out")]


async def test_a_failure_that_only_looks_like_a_timeout_is_a_failure(home, box):
    async with open_console(
        Config(), backends=[FakeBackend([box], faults={"exec": TimeoutError("of its own")})]
    ) as console:
        with pytest.raises(BackendError, match="of its own"):
            await console.perform(Exec(REF, ("echo",))).result()


async def test_cancelling_is_recorded(home, box):
    backend = FakeBackend([box], faults={"stop": 60.0})
    async with open_console(Config(), backends=[backend]) as console:
        operation = console.perform(Stop(REF))
        await permits(backend, 1)
        operation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await operation.result()
        assert await outcomes(console) == [("stop", "cancelled")]


async def permits(backend, count):
    async with asyncio.timeout(5):
        while len(backend.permits) < count:
            await asyncio.sleep(0.005)


async def test_closing_the_console_cancels_and_records_what_is_in_flight(home, box):
    backend = FakeBackend([box], faults={"stop": 60.0})
    async with open_console(Config(), backends=[backend]) as console:
        console.perform(Stop(REF))
        console.perform(Exec(REF, ("sleep", "60")))
        await permits(backend, 2)
    async with open_console(Config(), backends=[FakeBackend()]) as console:
        assert sorted(await outcomes(console)) == [("exec", "cancelled"), ("stop", "cancelled")]


async def test_a_closed_view_does_not_cancel_the_action(home, box):
    backend = FakeBackend([box], faults={"stop": 0.1})
    async with open_console(Config(), backends=[backend]) as console:
        operation = console.perform(Stop(REF))
        view = asyncio.create_task(operation.result())
        await permits(backend, 1)
        view.cancel()
        await asyncio.gather(view, return_exceptions=True)
        assert (await operation.result()).ref == REF
        assert backend.sandboxes[REF.id].status is Status.EXITED


# No journal, no effect


def newer(db):
    db.parent.mkdir(parents=True)
    connection = sqlite3.connect(db)
    connection.execute("PRAGMA user_version = 99")
    connection.close()


def garbage(db):
    db.parent.mkdir(parents=True)
    db.write_bytes(b"this is no database, and long enough to be read as one" * 100)


def a_folder_in_the_way(db):
    db.mkdir(parents=True)


@pytest.mark.parametrize("spoil", [newer, a_folder_in_the_way])
async def test_without_a_journal_nothing_changes_and_reads_go_on(home, db, box, spoil):
    spoil(db)
    backend = FakeBackend([box])
    async with open_console(Config(), backends=[backend]) as console:
        fds = None
        for _ in range(8):
            with pytest.raises(AuditUnavailable) as caught:
                await console.perform(Stop(REF)).result()
            fds = fds or len(list(Path("/proc/self/fd").iterdir()))
        assert caught.value.exit_code == 6
        assert len(list(Path("/proc/self/fd").iterdir())) == fds, "each try leaks a descriptor"
        assert not backend.permits
        assert [one.name for one in (await console.list())[0]] == ["box"]
        with pytest.raises(AuditUnavailable):
            await console.history(AuditQuery())
        assert console.audit_log.problem
    async with asyncio.timeout(5):
        while any("connection" in thread.name for thread in threading.enumerate()):
            await asyncio.sleep(0.01)


async def test_a_log_that_is_no_database_is_left_for_a_new_segment(home, db, box):
    garbage(db)
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        await console.perform(Stop(REF)).result()
        found = await console.verify()
        assert not found.ok
        assert "segment 1 was damaged" in found.problem
    assert db.read_bytes().startswith(b"this is no database")  # the evidence stays


async def test_a_replaced_database_stops_every_change(home, db, box):
    backend = FakeBackend([box])
    async with open_console(Config(), backends=[backend]) as console:
        await console.perform(Stop(REF)).result()
        db.rename(db.with_name("moved.db"))
        db.write_bytes(b"")
        before = len(backend.permits)
        with pytest.raises(AuditUnavailable, match="replaced"):
            await console.perform(Remove(REF)).result()
        assert len(backend.permits) == before
        db.unlink()
        db.with_name("moved.db").rename(db)
        await console.perform(Remove(REF)).result()
        assert console.audit_log.problem == "", "the banner stays although the log works again"


async def test_an_outcome_that_cannot_be_recorded_is_told(home, db, box):
    class Spoiling(FakeBackend):
        async def stop(self, permit, ref, grace_s):
            db.rename(db.with_name("moved.db"))

    async with open_console(Config(), backends=[Spoiling([box])]) as console:
        with pytest.raises(AuditUnavailable, match="could not be recorded"):
            await console.perform(Stop(REF)).result()
        db.with_name("moved.db").rename(db)


async def test_a_cancellation_stays_one_where_its_outcome_cannot_be_recorded(home, db, box):
    class Spoiling(FakeBackend):
        async def stop(self, permit, ref, grace_s):
            self.permits.append(permit)
            db.rename(db.with_name("moved.db"))
            await asyncio.sleep(60)

    backend = Spoiling([box])
    async with open_console(Config(), backends=[backend]) as console:
        operation = console.perform(Stop(REF))
        await permits(backend, 1)
        operation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await operation.result()
        db.with_name("moved.db").rename(db)


# Policy


async def test_read_only_denies_every_change_with_a_row(home, box):
    backend = FakeBackend([box])
    async with open_console(Config(), backends=[backend], read_only=True) as console:
        for action in (Stop(REF), Exec(REF, ("echo",)), Create(SandboxSpec("n", image="x"), "fake", "local")):
            with pytest.raises(Denied) as caught:
                await console.perform(action).result()
            assert caught.value.exit_code == 4
        with pytest.raises(Denied):
            await console.shell(OpenShell(REF))
        assert {outcome for _, outcome in await outcomes(console)} == {"denied"}
        assert len(await console.history(AuditQuery())) == 4
    assert not backend.permits


async def test_a_question_needs_its_answer(home, box):
    async with open_console(Config(policy=Rules(ask=("stop",))), backends=[FakeBackend([box])]) as console:
        with pytest.raises(NeedsConfirmation) as caught:
            await console.perform(Stop(REF)).result()
        assert caught.value.exit_code == 4
        await console.perform(Stop(REF), consent=Consent(yes=True)).result()
        assert await outcomes(console) == [("stop", "denied"), ("stop", "ok")]


async def test_a_foreign_sandbox_needs_its_id(home, box):
    backend = FakeBackend([structs.replace(box, managed=False)])
    async with open_console(Config(), backends=[backend]) as console:
        for consent in (Consent(), Consent(yes=True), Consent(confirm="box")):
            with pytest.raises(NeedsConfirmation) as caught:
                await console.perform(Stop(REF), consent=consent).result()
            assert caught.value.token == REF.id
        await console.perform(Stop(REF), consent=Consent(confirm=REF.id)).result()


async def test_a_missing_capability_is_named(home, box):
    reasons = {Capability.STOP: "it has no brakes"}
    backend = FakeBackend([box], capabilities=Capabilities(frozenset(), reasons))
    async with open_console(Config(), backends=[backend]) as console:
        with pytest.raises(Unsupported, match="stop is unsupported here: it has no brakes"):
            await console.perform(Stop(REF)).result()
        assert await outcomes(console) == [("stop", "unsupported")]


# Secrets


async def test_no_secret_gets_into_a_row_an_error_or_a_message(home, db, box, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", VALUE)
    box = structs.replace(box, spec=structs.replace(box.spec, secrets=("TOKEN",)))
    backend = FakeBackend([box], faults={"stop": Conflict(f"it said {VALUE}", hint=VALUE)})
    config = Config(secrets={"TOKEN": SecretSource(source="env:MY_TOKEN")})
    async with open_console(config, backends=[backend]) as console:
        pasted = await console.perform(Exec(REF, ("echo", f"--token={VALUE}"))).result()
        assert pasted.stdout == b"--token=[secret]\n"
        shown = await console.perform(Exec(REF, ("env",))).result()
        assert shown.stdout == b"TOKEN=[secret]\n"
        with pytest.raises(Conflict) as caught:
            await console.perform(Stop(REF)).result()
        assert VALUE not in str(caught.value.as_dict()) + str(caught.value) + repr(caught.value)
        with pytest.raises(InvalidSpec) as invalid:
            await console.perform(Update(REF, SandboxSpec(f"{VALUE} !", image="x", secrets=("TOKEN",)))).result()
        assert VALUE not in invalid.value.message
    stored = b"".join(path.read_bytes() for path in db.parent.glob("audit.db*"))
    assert VALUE.encode() not in stored


async def test_a_secret_that_cannot_be_read_is_a_failed_action(home, box, monkeypatch):
    monkeypatch.delenv("MY_TOKEN", raising=False)
    box = structs.replace(box, spec=structs.replace(box.spec, secrets=("TOKEN",)))
    backend = FakeBackend([box])
    table = {"TOKEN": SecretSource(source="env:MY_TOKEN")}
    config = Config(secrets=table, policy=Rules(enter_without_secrets=False))
    async with open_console(config, backends=[backend]) as console:
        with pytest.raises(SecretError, match="MY_TOKEN is not set"):
            await console.perform(Exec(REF, ("env",))).result()
        with pytest.raises(SecretError, match="MY_TOKEN is not set"):
            await console.shell(OpenShell(REF))
        assert sorted(await outcomes(console)) == [("exec", "failed"), ("shell", "failed")]
    assert not backend.permits
    async with open_console(Config(secrets=table), backends=[backend]) as console:
        with pytest.raises(SecretError, match="MY_TOKEN is not set"):
            await console.perform(Restart(REF)).result()


@pytest.mark.parametrize("known", [True, False])
async def test_a_sandbox_is_entered_without_a_secret_that_cannot_be_read(home, box, monkeypatch, known):
    monkeypatch.delenv("MY_TOKEN", raising=False)
    monkeypatch.setenv("OTHER_TOKEN", VALUE)
    box = structs.replace(box, spec=structs.replace(box.spec, secrets=("TOKEN", "OTHER")))
    table = {"OTHER": SecretSource(source="env:OTHER_TOKEN")}
    if known:
        table["TOKEN"] = SecretSource(source="env:MY_TOKEN")
    async with open_console(Config(secrets=table), backends=[FakeBackend([box])]) as console:
        done = await console.perform(Exec(REF, ("env",))).result()
        assert done.stdout == b"OTHER=[secret]\n"
        assert done.details["without_secrets"] == ["TOKEN"]
        session = await console.shell(OpenShell(REF))
        assert session.without == ("TOKEN",)
        await session.close()
        entries = await console.history(AuditQuery())
        assert [entry.end.body["without_secrets"] for entry in entries] == [["TOKEN"], ["TOKEN"]]


# Updates


class Failing(FakeBackend):
    def __init__(self, *args, fail="", **fields):
        super().__init__(*args, **fields)
        self.fail = fail

    async def start(self, permit, ref, secrets):
        if self.fail == "start" and ref != REF:
            raise BackendError("the new one does not start")
        await super().start(permit, ref, secrets)

    async def rename(self, permit, ref, name):
        if self.fail == "rename" and ref != REF:
            raise BackendError("no name for you")
        await super().rename(permit, ref, name)


@pytest.mark.parametrize("fail", ["create", "start", "rename"])
async def test_a_failed_recreate_leaves_the_old_one_running_and_alone(home, box, fail):
    faults = {"create": BackendError("no")} if fail == "create" else {}
    backend = Failing([box], fail=fail, faults=faults)
    async with open_console(Config(), backends=[backend]) as console:
        with pytest.raises(BackendError):
            await console.perform(Update(REF, structs.replace(box.spec, image="y"))).result()
        [left] = backend.sandboxes.values()
        assert (left.ref, left.name, left.status, left.image) == (REF, "box", Status.RUNNING, "x")
        assert await outcomes(console) == [("update", "failed")]


async def test_a_recreate_takes_the_name_and_removes_the_old(home, box):
    backend = FakeBackend([box])
    async with open_console(Config(), backends=[backend]) as console:
        result = await console.perform(Update(REF, structs.replace(box.spec, image="y"))).result()
        [left] = backend.sandboxes.values()
        assert (left.ref, left.name, left.status, left.image) == (result.ref, "box", Status.RUNNING, "y")
        assert result.ref != REF


@pytest.mark.parametrize("delay", [0.0, 0.005, 0.02, 0.04, 0.06])
async def test_a_cancelled_recreate_leaves_exactly_one(home, box, delay):
    slow = dict.fromkeys(("create", "stop", "start", "rename", "remove"), 0.01)
    backend = FakeBackend([box], faults=slow)
    async with open_console(Config(), backends=[backend]) as console:
        operation = console.perform(Update(REF, structs.replace(box.spec, image="y")))
        await permits(backend, 1)
        await asyncio.sleep(delay)
        operation.cancel()
        await asyncio.gather(operation.result(), return_exceptions=True)
        [left] = backend.sandboxes.values()
        assert (left.name, left.status) == ("box", Status.RUNNING)


async def test_labels_are_changed_live_and_an_unsupported_change_is_refused(home, box):
    capabilities = Capabilities(frozenset(Capability) - {Capability.READ_ONLY_ROOT})
    backend = FakeBackend([box], capabilities=capabilities)
    async with open_console(Config(), backends=[backend]) as console:
        await console.perform(Update(REF, structs.replace(box.spec, labels={"a": "b"}))).result()
        assert dict(backend.sandboxes[REF.id].labels) == {"a": "b"}
        with pytest.raises(Unsupported, match="read_only_root"):
            await console.perform(Update(REF, structs.replace(box.spec, read_only_root=True))).result()


# Shells


async def test_a_live_change_beyond_the_backends_bounds_is_refused_in_plan_and_deed(home, box):
    class Bounded(FakeBackend):
        async def out_of_bounds(self, ref, spec):
            return {"memory_mib": "it grows to 512 MiB: stop it first"} if (spec.memory_mib or 0) > 512 else {}

    async with open_console(Config(), backends=[Bounded([box])]) as console:
        for size, how in ((512, "live"), (513, "unsupported")):
            plan = await console.plan(box, structs.replace(box.spec, memory_mib=size))
            assert (str(plan.how), "stop it first" in plan.changes[0].reason) == (how, size > 512)
        with pytest.raises(Unsupported, match="stop it first"):
            await console.perform(Update(REF, structs.replace(box.spec, memory_mib=513))).result()
        assert (await console.inspect(REF)).spec == box.spec
        anew = await console.plan(box, structs.replace(box.spec, memory_mib=513, image="y"))
        assert str(anew.how) == "recreate"


async def test_a_shells_end_is_noted_once(home, box):
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        shell = await console.shell(OpenShell(REF))
        await shell.write(b"exit 3\r")
        while await shell.read():
            pass
        await asyncio.gather(shell.close(), shell.close())
        [entry] = await console.history(AuditQuery())
        [note] = entry.notes
        assert (entry.outcome, note.body["exit"], note.body["bytes_in"]) == ("ok", 3, 7)


async def test_closing_a_shell_ends_its_reader_without_cancelling_it(home, box):
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        shell = await console.shell(OpenShell(REF))
        assert await shell.read() == b"$ "
        reader = asyncio.create_task(shell.read())
        await asyncio.sleep(0.01)
        await shell.close()
        async with asyncio.timeout(5):
            assert await reader == b""


async def test_a_shell_still_open_is_ended_and_noted_with_the_console(home, box):
    async with open_console(Config(), backends=[FakeBackend([box])]) as console:
        await console.shell(OpenShell(REF))
    async with open_console(Config(), backends=[FakeBackend()]) as console:
        [entry] = await console.history(AuditQuery())
        assert entry.notes[0].body["exit"] == 129


async def test_a_dead_backend_is_unreachable_with_a_row(home, box):
    async with open_console(Config(), backends=[FakeBackend([box], dead=True, reason="the cable is out")]) as console:
        with pytest.raises(BackendUnreachable, match="the cable is out") as caught:
            await console.perform(Stop(REF)).result()
        assert caught.value.exit_code == 5
        assert await outcomes(console) == [("stop", "failed")]
