"""A label hides all other sandboxes: from every read of every backend, and from all records."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.people.test_roles import OURS, SEARCH, THEIRS, WEB, box
from tests.support.require import requires

from sandbox_console.errors import Ambiguous, Conflict, ConsoleError, NotFound
from sandbox_console.model.access import Access, full, limited_to, work_for
from sandbox_console.model.action import Create, Exec, OpenShell, Remove, Stop
from sandbox_console.model.actor import acting_as
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.event import Changed, Listed, Removed
from sandbox_console.model.log import LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, Console, open_console
from sandbox_console.service.reads.scope import READS
from sandbox_console.service.reads.watcher import Watcher
from sandbox_console.testing.fake_backend import FakeBackend

ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "logs": ((LogQuery(),), {}), "stats": ((1.0,), {}), "stat": (("/etc",), {}), "list_dir": (("/etc",), {}),
    "out_of_bounds": ((SandboxSpec("x"),), {}), "guest_events": ((), {"since": None, "follow": False}),
    "egress_records": ((), {"since": None, "follow": False}),
}  # fmt: skip


@pytest.fixture
def backend() -> FakeBackend:
    logs = {one.id: [LogRecord(1, Stream.STDOUT, b"a line\n")] for one in (OURS, THEIRS)}
    return FakeBackend([box(OURS, "ours", SEARCH), box(THEIRS, "theirs", WEB)], logs=logs)


@pytest.fixture
async def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: FakeBackend) -> AsyncIterator[Console]:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    async with open_console(Config(backend="fake"), backends=[backend]) as opened:
        yield opened


def of_search() -> Access:
    return Access("admin", SEARCH)


async def read(console: Console, name: str, ref: Any) -> Any:
    args, named = ARGUMENTS.get(name, ((), {}))
    method = getattr(await console.fleet.use("fake", "local"), name)
    found = method(ref, *args, **named)
    if inspect.isawaitable(found):
        return await found
    async with aclosing(found) as items:
        async for item in items:
            return item
    return None


async def hidden(console: Console, name: str, ref: SandboxRef) -> bool:
    """Whether a read says that the sandbox is not there. That a path in it is not there is another error."""
    try:
        await read(console, name, ref)
    except NotFound as error:
        return error.message == f"there is no sandbox {ref}"
    return False


@pytest.mark.parametrize("name", sorted(READS))
async def test_every_read_of_a_hidden_sandbox_finds_nothing(console: Console, backend: FakeBackend, name: str) -> None:
    if not hasattr(backend, name):
        pytest.skip(f"the backend in memory has no {name}")
    assert [await hidden(console, name, ref) for ref in (OURS, THEIRS)] == [False, False]
    with limited_to(of_search):
        assert [await hidden(console, name, ref) for ref in (OURS, THEIRS)] == [False, True]


async def test_lists_and_names_show_only_those_with_the_label(console: Console, backend: FakeBackend) -> None:
    twin = structs.replace(box(structs.replace(THEIRS, id="twin-id-0001"), "ours", WEB))
    backend.sandboxes[twin.ref.id] = twin
    with pytest.raises(Ambiguous):
        await console.find("ours")
    with limited_to(of_search):
        assert [one.name for one in (await console.list())[0]] == ["ours"]
        assert [one.name for one in (await console.names())[0]] == ["ours"]
        parts = [part async for part, _ in console.list_as_answered(patience_s=1.0)]
        assert [one.name for part in parts for one in part[0]] == ["ours"]
        assert (await console.find("ours")).ref == OURS, "nothing tells that there is another"
        for word in ("theirs", str(THEIRS), THEIRS.id[:8]):
            with pytest.raises(NotFound) as error:
                await console.find(word)
            assert "theirs" not in f"{error.value.message}{error.value.hint}".replace(word, "")
    assert len((await console.list())[0]) == 3
    assert {"ours", "theirs"} <= console.fleet.names.every(), "what others know is not cut down"


async def test_records_are_those_of_what_may_be_seen_and_ones_own(console: Console) -> None:
    with acting_as("api:bob"):
        for ref in (OURS, THEIRS):
            await console.perform(Exec(ref, ("true",))).result()
        theirs = await console.perform(Create(SandboxSpec("late", image="x", labels=WEB), "fake", "local")).result()
    with acting_as("api:ada"), limited_to(of_search):
        with pytest.raises(NotFound):
            await console.perform(Stop(THEIRS)).result()
        mine = await console.perform(Create(SandboxSpec("mine", image="x"), "fake", "local")).result()
        seen = await console.history(AuditQuery(limit=50))
        rows = [(entry.attempt.actor, entry.attempt.action, entry.attempt.target) for entry in seen]
        assert rows == [
            ("api:ada", "create", "fake/local/name:mine"), ("api:ada", "stop", str(THEIRS)),
            ("api:bob", "exec", str(OURS)),
        ]  # fmt: skip
        assert len(await console.history(AuditQuery(limit=1))) == 1
        assert (await console.history(AuditQuery(limit=1, actor="api:bob")))[0].attempt.target == str(OURS)
        assert await console.history(AuditQuery(limit=50, target=str(THEIRS), actor="api:bob")) == []
        assert (await console.audit_entry(mine.audit_id)).attempt.action == "create"
        with pytest.raises(NotFound, match="no row"):
            await console.audit_entry(theirs.audit_id)
    assert len(await console.history(AuditQuery(limit=50))) == 5


async def test_ones_own_rows_are_those_of_the_person_in_every_session_and_no_one_elses(console: Console) -> None:
    mine = ("browser:ada.l.12ab34cd@::1", "browser:ada.l.ffffffff@10.0.0.1", "api:ada.l", "mcp:ada.l")
    others = ("browser:ada.12ab34cd@::1", "user:ada.l", "browser:12ab34cd@::1", "ssh:ada.l", "browser:oidc:ada.l.1@::1")
    for actor in (*mine, *others):
        with acting_as(actor):
            await console.perform(Exec(THEIRS, ("true",))).result()
    with acting_as(mine[0]), limited_to(of_search):
        assert {entry.attempt.actor for entry in await console.history(AuditQuery(limit=50))} == set(mine)
    with acting_as("browser:12ab34cd@10.0.0.1"), limited_to(of_search):
        assert await console.history(AuditQuery(limit=50)) == [], "a nameless session is nobody's other one"


async def test_recordings_and_shells_of_others_are_not_there(console: Console, tmp_path: Path) -> None:
    for ref in (OURS, THEIRS):
        session = await console.shell(OpenShell(ref, record=True, shell="/bin/sh"), consent=Consent(yes=True))
        await session.close()
    every = {recording.ref: recording.id for recording in await console.recordings.list()}
    assert set(every) == {OURS, THEIRS}

    def anything(id_: str) -> AsyncIterator[Any]:
        return console.recordings.matches(id_, "")

    with limited_to(of_search):
        assert [recording.ref for recording in await console.recordings.list()] == [OURS]
        for read_lines in (console.recordings.text, console.recordings.events, anything):
            with pytest.raises(NotFound):
                _ = [line async for line in read_lines(every[THEIRS])]
            _ = [line async for line in read_lines(every[OURS])]
        found = [match.recording.ref async for match in console.recordings.search("")]
        assert set(found) <= {OURS}
        assert await console.kept_shells.list() == []
        assert await console.inside.snapshots("fake", "local") == ()


async def test_a_stream_ends_when_the_label_is_taken_off(
    console: Console, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_console.service.reads.scope.AGAIN_S", 0.0)
    with limited_to(of_search):
        samples = console.stats(OURS, 0.01)
        await anext(samples)
        backend.sandboxes[OURS.id] = box(OURS, "ours", WEB)
        with pytest.raises(NotFound):
            await exhaust(samples)


async def test_a_process_that_works_for_one_person_hears_only_of_theirs(
    console: Console, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_for(of_search)
    try:
        events: list[Any] = []
        monkeypatch.setattr(console.hub, "publish", events.append)
        watcher = Watcher(console.fleet, events.append, console.masking)
        watcher.start()
        await until(lambda: any(isinstance(one, Listed) for one in events))
        for queue in backend._watchers:
            queue.put_nowait(Changed(box(OURS, "ours", WEB)))
            queue.put_nowait(Changed(box(THEIRS, "theirs", WEB)))
        await until(lambda: sum(isinstance(one, Removed) for one in events) == 2)
        await watcher.close()
        listed = next(one for one in events if isinstance(one, Listed))
        assert [one.name for one in listed.sandboxes] == ["ours"]
        assert not any(isinstance(one, Changed) for one in events)
        with pytest.raises(ConsoleError):
            await console.inspect(THEIRS)
    finally:
        work_for(full)
    assert (await console.inspect(THEIRS)).name == "theirs"


async def test_a_shell_is_ended_when_its_sandbox_loses_the_label(
    console: Console, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_console.service.sessions.open_sessions.LOOK_S", 0.05)
    with limited_to(of_search):
        session = await console.shell(OpenShell(OURS, shell="/bin/sh"), consent=Consent(yes=True))
        await asyncio.sleep(0.2)
        assert not session.closed
        backend.sandboxes[OURS.id] = box(OURS, "ours", WEB)
        await until(lambda: session.closed)


async def exhaust(items: AsyncIterator[Any]) -> None:
    async with asyncio.timeout(5):
        async for _ in items:
            pass


async def until(true: Any) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.01)


@requires("bubblewrap")
async def test_who_has_a_port_is_not_told_to_somebody_who_may_not_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    theirs, ours = (
        SandboxSpec(name, image="host", command=("sleep", "60"), ports=(f"{port}:80",), limits="best-effort")
        for name in ("theirs", "ours")
    )
    async with open_console(Config(backend="bubblewrap")) as console:
        made = await console.perform(Create(theirs, "bubblewrap", "local")).result()
        try:
            with limited_to(of_search), pytest.raises(Conflict, match="another sandbox or program") as raised:
                await console.perform(Create(ours, "bubblewrap", "local")).result()
            assert "theirs" not in raised.value.message + raised.value.hint
            with pytest.raises(Conflict, match="is taken by theirs"):
                await console.perform(Create(ours, "bubblewrap", "local")).result()
        finally:
            assert made.ref is not None
            await console.perform(Remove(made.ref, force=True), consent=Consent(yes=True)).result()
