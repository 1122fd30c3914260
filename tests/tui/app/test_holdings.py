"""Images, snapshots, names and the main process by keys: each asked, told, confirmed, done through the gate."""

from __future__ import annotations

import asyncio
import shlex

import pytest
from msgspec import structs
from tests.tui.app.scene import NOW, fleet, ref, screen_text, until
from textual.widgets import Input, OptionList

from sandbox_console.cli.parser import parse
from sandbox_console.errors import BackendError
from sandbox_console.model.action import Attach
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.host_action import PruneImages, PullImage, RemoveImage, RemoveSnapshot, RestoreSnapshot
from sandbox_console.model.image import Image
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Fact
from sandbox_console.testing.fake_backend import FakeBackend, Within
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.images.images_screen import ImagesScreen
from sandbox_console.tui.images.snapshots_screen import SnapshotsScreen
from sandbox_console.tui.shell.attach_screen import AttachScreen
from sandbox_console.tui.state.verbs import NAMINGS
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.terminal.terminal import TerminalView

PLACE = ("fake", "local")


def on(app, kind):
    return lambda: isinstance(app.screen, kind) and app.screen.is_mounted


def without(capability, reason):
    every = frozenset(Capability) - {capability}
    return Capabilities(every, {capability: reason})


async def rows_of(app):
    return [row.key for row in app.screen.query_one(FleetTable).rows]


async def last(app, verb):
    found = [one for one in await app.service.history(AuditQuery(limit=20)) if one.attempt.action == verb]
    return found[0] if found else None


async def typed(pilot, app, text):
    await until(pilot, on(app, AskScreen))
    app.screen.query_one(Input).value = text
    await pilot.pause()
    await pilot.press("enter")


@pytest.fixture
def stocked():
    images = [
        Image(*PLACE, "sha256:" + "1" * 64, ("spare:1", "spare:latest"), size_bytes=7 << 20, created_at=NOW - 100),
        Image(*PLACE, "sha256:" + "2" * 64, (), size_bytes=5 << 20, created_at=NOW - 9000),
    ]
    return FakeBackend(fleet(), within=Within(images=images), clock=lambda: NOW)


async def test_images_of_every_backend_or_why_there_are_none(run_app, stocked):
    lacking = FakeBackend(name="plain", capabilities=without(Capability.IMAGES, "it runs folders"))
    broken = FakeBackend(name="broken", faults={"images": BackendError("its store is damaged", hint="repair it")})
    async with run_app(stocked, lacking, broken, size=(80, 24)) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.health) == 3)
        await pilot.press("P")
        await until(pilot, lambda: "repair it" in screen_text(app) and "spare:1" in screen_text(app))
        text = screen_text(app)
        assert "– plain: it runs folders" in text
        assert "✕ broken: its store is damaged" in text
        assert any("python:3.12" in line and "agent" in line for line in text.splitlines()), "who uses it"
        assert "not used" in next(line for line in text.splitlines() if "spare:1" in line)
        app.screen.query_one(FleetTable).move_to((PLACE, "sha256:" + "1" * 64, "spare:1"))
        await pilot.press("delete")
        await until(pilot, on(app, ConfirmScreen))
        assert "the image stays as spare:latest" in screen_text(app)
        assert "images rm spare:1 --backend fake/local" in screen_text(app)
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, ImagesScreen) and "spare:1 " not in screen_text(app))
        assert "spare:latest" in screen_text(app)
        await pilot.press("P")
        await until(pilot, on(app, MenuScreen))
        assert "2 images, frees 12M" in screen_text(app)
        await pilot.press("a")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, ImagesScreen) and "spare" not in screen_text(app))
        assert (await last(app, "prune-images")).end.outcome == "ok"


async def test_where_no_backend_has_any_the_screen_says_so(run_app):
    lacking = FakeBackend(fleet(), capabilities=without(Capability.SNAPSHOT, "there is no such thing"))
    async with run_app(lacking) as (app, pilot):
        await pilot.press("V")
        await until(pilot, lambda: "No backend here supports snapshots" in screen_text(app))
        assert "– fake: there is no such thing" in screen_text(app)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, SnapshotsScreen))


async def test_a_pull_shows_its_layers_and_is_cancelled(run_app, stocked, monkeypatch):
    held = asyncio.Event()

    async def pull(permit, name, progress):
        for line in ("1/2: noise", "aaaa: Pull complete", "bbbb: Downloading 1.0/2.0 MiB (50 %)", "cccc: Waiting"):
            progress(line)
        await held.wait()

    monkeypatch.setattr(stocked, "pull_image", pull)
    async with run_app(stocked, size=(80, 24)) as (app, pilot):
        await pilot.press("P", "p")
        await typed(pilot, app, "team/app:1")
        await until(pilot, lambda: "Downloading 1.0/2.0 MiB (50 %)" in screen_text(app))
        assert "↓ team/app:1" in screen_text(app)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        await pilot.press("P")
        await until(pilot, lambda: "Downloading 1.0/2.0 MiB (50 %)" in screen_text(app))
        await pilot.press("x")
        await until(pilot, lambda: not app.hosts.pulls)
        assert (await last(app, "pull")).end.outcome == "cancelled"


async def test_what_the_policy_forbids_is_told_and_on_record(run_app, stocked):
    async with run_app(stocked, read_only=True) as (app, pilot):
        await pilot.press("P", "p")
        await typed(pilot, app, "team/app:1")
        await until(pilot, lambda: "read-only" in screen_text(app))
        assert (await last(app, "pull")).end.outcome == "denied"


async def test_rename_commit_and_snapshots(run_app, stocked):
    async with run_app(stocked) as (app, pilot):
        app.main.table.move_to(ref("aaaaaaaaaaaa"))
        await pilot.press("ctrl+r")
        await until(pilot, on(app, AskScreen))
        assert app.screen.query_one(Input).value == "agent"
        await typed(pilot, app, "agent-2")
        await until(pilot, lambda: app.fleet.sandboxes[ref("aaaaaaaaaaaa")].name == "agent-2" and not app.fleet.busy)
        await pilot.press("O")
        await until(pilot, on(app, AskScreen))
        await pilot.press(*"x/y")
        await until(pilot, lambda: "commit fake/local/aaaaaaaaaaaa x/y" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: any("x/y" in one.names for one in stocked._images.values()) and not app.fleet.busy)
        await pilot.press("V", "n")
        await typed(pilot, app, "before")
        await until(pilot, lambda: isinstance(app.screen, SnapshotsScreen) and "before" in screen_text(app))
        assert "agent-2" in screen_text(app)
        await pilot.press("enter")
        await typed(pilot, app, "again")
        await until(pilot, lambda: "again" in [one.name for one in app.fleet.sandboxes.values()])
        await until(pilot, lambda: isinstance(app.screen, SnapshotsScreen))
        await pilot.press("delete")
        await until(pilot, on(app, ConfirmScreen))
        app.screen.query_one(Input).value = "before"
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: "No snapshots yet" in screen_text(app))
        for verb in ("rename", "commit", "snapshot", "restore", "remove-snapshot"):
            assert (await last(app, verb)).end.outcome == "ok", verb


async def test_the_main_process_is_watched_fed_and_let_go_of(run_app, fake):
    async with run_app() as (app, pilot):
        app.main.table.move_to(ref("aaaaaaaaaaaa"))
        await pilot.press("F")
        await until(pilot, on(app, AttachScreen))
        await fake.say(ref("aaaaaaaaaaaa"), LogRecord(int(NOW * 10**9), Stream.STDOUT, b"one\ntwo\n"))
        await until(pilot, lambda: "two" in app.screen.query_one(TerminalView).screen_text())
        assert app.screen.query_one(TerminalView).screen_text().splitlines()[:2] == ["one", "two"], "from the left"
        await pilot.press("q")
        assert isinstance(app.screen, AttachScreen), "keys are the process's"
        await pilot.press("ctrl+right_square_bracket")
        await until(pilot, lambda: app.screen is app.main)
        await until(pilot, lambda: not app.service._work._tasks)
        assert (await last(app, "attach")).end.outcome == "ok"


async def test_of_another_tools_sandbox_only_what_changes_live_can_be_edited(run_app):
    theirs = next(one for one in fleet() if not one.managed)
    theirs = structs.replace(theirs, effective=(Fact("memory_mib", "64"),))
    backend = FakeBackend([theirs], clock=lambda: NOW)
    async with run_app(backend) as (app, pilot):
        await pilot.press("e")
        await until(pilot, on(app, FormScreen))
        fields = {one.id.removeprefix("field-"): one for one in app.screen.query(Input) if one.id.startswith("field-")}
        assert {name for name, one in fields.items() if not one.disabled} == {"name", "cpus", "memory_mib", "pids"}
        assert "Cannot be changed: Image, Command" in screen_text(app)
        assert "another tool made it" in " ".join(screen_text(app).split())
        fields["memory_mib"].value = ""
        await until(pilot, lambda: "unsupported" in screen_text(app))
        fields["memory_mib"].value = "96M"
        await until(pilot, lambda: "● live" in screen_text(app))
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        assert "changed while it goes on running" in screen_text(app)
        app.screen.query_one(Input).value = theirs.ref.id
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert list(backend.sandboxes) == [theirs.ref.id], "it is the same one"
        row = await last(app, "update")
        assert (row.end.outcome, row.attempt.body["diff"]) == ("ok", {"memory_mib": [64, 96]})


def test_every_command_line_is_one_that_the_command_line_takes():
    box = fleet()[0]
    actions = [naming.make(box, "") for naming in NAMINGS.values()]
    actions += [Attach(box.ref), PullImage(*PLACE, ""), RemoveImage(*PLACE, "a:1", force=True)]
    actions += [PruneImages(*PLACE, unused=True), RestoreSnapshot(*PLACE, "s", ""), RemoveSnapshot(*PLACE, "s")]
    for action in actions:
        parse(shlex.split(command_line(action))[1:])


async def test_the_menu_and_the_palette_offer_them_with_the_reason_where_not(run_app):
    backend = FakeBackend(fleet(), capabilities=without(Capability.FORK, "its memory cannot be copied"))
    async with run_app(backend) as (app, pilot):
        app.main.table.move_to(ref("aaaaaaaaaaaa"))
        await pilot.press("m")
        await until(pilot, lambda: "fork is unsupported here" in screen_text(app))
        options = app.screen.query_one(OptionList)
        offered = {option.id for option in options._options if not option.disabled}
        assert offered >= {"attach", "edit", "name('rename')", "name('commit')", "name('snapshot')"}
        await pilot.press("escape", "colon", *"images", "enter")
        await until(pilot, on(app, ImagesScreen))
