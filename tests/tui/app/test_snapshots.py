"""How the screens look, at the smallest common terminal and at a roomy one."""

from __future__ import annotations

import dataclasses

import pytest
from pytest_textual_snapshot import SVGImageExtension
from tests.tui.app.scene import NOW, NS, ref, sandbox, screen_text, until
from textual.widgets import Input

from sandbox_console.errors import BackendError
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Status
from sandbox_console.testing.fake import FakeBackend
from sandbox_console.tui.screens.confirm import ConfirmScreen
from sandbox_console.tui.screens.form import FormScreen
from sandbox_console.tui.screens.menu import MenuScreen
from sandbox_console.tui.screens.text import TextScreen, TooSmallScreen
from sandbox_console.tui.widgets.terminal import TerminalView

SIZES = [(80, 24), (120, 40)]
both = pytest.mark.parametrize("size", SIZES, ids=["80x24", "120x40"])
HOSTILE = "[@click=app.quit]x[/]\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202eevil\u200b"


@pytest.fixture
def looks(snapshot):
    async def check(app, pilot):
        app.screen.set_focus(app.focused) if app.focused else None
        for widget in app.screen.query(Input):
            widget.cursor_blink = False
        await pilot.pause(0.1)
        assert snapshot.use_extension(SVGImageExtension) == app.export_screenshot(title="sandbox-console")

    return check


async def sampled(app, pilot):
    await until(pilot, lambda: len(app.fleet.stats) == 3)


def on(app, kind):
    return lambda: isinstance(app.screen, kind)


@both
async def test_main(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await sampled(app, pilot)
        if size == (120, 40):
            await until(pilot, lambda: "step 8 of 9" in screen_text(app))
        await looks(app, pilot)


async def test_main_in_light(run_app, looks):
    async with run_app() as (app, pilot):
        await sampled(app, pilot)
        app.action_light()
        await until(pilot, lambda: "step 8 of 9" in screen_text(app))
        await looks(app, pilot)


@both
async def test_logs(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await sampled(app, pilot)
        await pilot.press("l")
        await until(pilot, lambda: "step 8 of 9" in screen_text(app))
        await looks(app, pilot)


@both
async def test_shell(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await sampled(app, pilot)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.focused, TerminalView))
        await pilot.press(*"hello")
        await until(pilot, lambda: "hello" in app.focused.screen_text())
        await looks(app, pilot)


@both
async def test_spec(run_app, fake, looks, size):
    fake._capabilities = Capabilities(
        frozenset(Capability) - {Capability.SNAPSHOT, Capability.FORK},
        {Capability.SNAPSHOT: "its files are the host's"},
    )
    async with run_app(size=size) as (app, pilot):
        await sampled(app, pilot)
        await pilot.press("y")
        await until(pilot, lambda: "not enforced" in screen_text(app))
        await looks(app, pilot)


@both
async def test_audit(run_app, fake, looks, size):
    fake.faults.verbs["kill"] = BackendError("the engine is busy")
    async with run_app(size=size) as (app, pilot):
        await sampled(app, pilot)
        real = app.service.history

        async def at_one_time(query):
            def fixed(row):
                return row and dataclasses.replace(row, at_ns=int(NOW * NS), dur_us=1000)

            return [dataclasses.replace(e, attempt=fixed(e.attempt), end=fixed(e.end)) for e in await real(query)]

        app.service.history = at_one_time
        await pilot.press("ctrl+k")
        await until(pilot, on(app, ConfirmScreen))
        app.screen.query_one(Input).value = "aaaaaaaaaaaa"
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: app.fleet.acted)
        await pilot.press("x")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: len(app.fleet.acted) == 2)
        await pilot.press("9")
        await until(pilot, lambda: "✕ failed" in screen_text(app))
        app.clear_notifications()
        await looks(app, pilot)


@both
async def test_form_with_errors(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        wrong = {"name": "bad name!", "memory_mib": "512 apples", "cpus": "0", "egress": "https://x.io/y"}
        for name, text in wrong.items():
            app.screen.query_one(f"#field-{name}", Input).value = text
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(app.screen.query("FormRow.-wrong")) == 4)
        await looks(app, pilot)


@both
async def test_edit_plan(run_app, fake, looks, size):
    fake._capabilities = Capabilities(
        frozenset(Capability) - {Capability.EGRESS_ALLOWLIST}, {Capability.EGRESS_ALLOWLIST: "there is no gateway yet"}
    )
    async with run_app(size=size) as (app, pilot):
        await pilot.press("e")
        await until(pilot, on(app, FormScreen))
        for name, text in {"cpus": "2", "image": "python:3.13", "egress": "example.org"}.items():
            app.screen.query_one(f"#field-{name}", Input).value = text
        await until(pilot, lambda: len(app.screen.query("FormRow.-wrong")) == 1)
        app.screen.query_one("#plan").scroll_visible(animate=False)
        await looks(app, pilot)


@both
async def test_confirm_kill(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await sampled(app, pilot)
        await pilot.press("ctrl+k")
        await until(pilot, on(app, ConfirmScreen))
        await looks(app, pilot)


async def test_confirm_stop(run_app, looks):
    async with run_app(size=(80, 24)) as (app, pilot):
        await sampled(app, pilot)
        await pilot.press("x")
        await until(pilot, on(app, ConfirmScreen))
        await looks(app, pilot)


async def test_menu(run_app, fake, looks):
    fake._capabilities = Capabilities(frozenset(Capability) - {Capability.PAUSE}, {Capability.PAUSE: "no freezer here"})
    async with run_app(size=(80, 24)) as (app, pilot):
        await sampled(app, pilot)
        await pilot.press("m")
        await until(pilot, on(app, MenuScreen))
        await looks(app, pilot)


@both
async def test_help(run_app, looks, size):
    async with run_app(size=size) as (app, pilot):
        await sampled(app, pilot)
        await pilot.press("question_mark")
        await until(pilot, on(app, TextScreen))
        await looks(app, pilot)


@both
async def test_empty(run_app, looks, size):
    async with run_app(FakeBackend(), size=size, ready=False) as (app, pilot):
        await until(pilot, lambda: "Press n to create one" in screen_text(app))
        await looks(app, pilot)


@both
async def test_dead_backend(run_app, fake, looks, size):
    dead = FakeBackend(name="docker", dead=True, reason="connection refused at /run/docker.sock")
    async with run_app(fake, dead, size=size) as (app, pilot):
        await sampled(app, pilot)
        await until(pilot, lambda: "connection refused" in screen_text(app))
        await looks(app, pilot)


async def test_audit_unwritable_and_read_only(run_app, looks):
    async with run_app(size=(80, 24), read_only=True) as (app, pilot):
        await sampled(app, pilot)
        app.service.trail.note_problem("the audit log /x/audit.db cannot be written: no space left on device")
        await until(pilot, lambda: "AUDIT LOG UNWRITABLE" in screen_text(app))
        await looks(app, pilot)


async def test_filter(run_app, looks):
    async with run_app(size=(80, 24)) as (app, pilot):
        await sampled(app, pilot)
        await pilot.press("slash", *"!running")
        await until(pilot, lambda: "3 of 6" in screen_text(app))
        await looks(app, pilot)


async def test_too_small(run_app, looks):
    async with run_app(size=(50, 12)) as (app, pilot):
        await until(pilot, on(app, TooSmallScreen))
        await looks(app, pilot)


@both
async def test_hostile_text(run_app, looks, size):
    bad = sandbox("0123456789abcdef", HOSTILE, managed=False, image=HOSTILE, labels={HOSTILE: HOSTILE}, maker=HOSTILE)
    gone = sandbox("abcdef\u202e\x1b[2J", "рayments", Status.LOST, detail=HOSTILE)
    logs = {"0123456789abcdef": [LogRecord(int(NOW * NS), Stream.STDOUT, HOSTILE.encode() + b"\n")]}
    fake = FakeBackend([bad, gone], logs=logs, clock=lambda: NOW)
    async with run_app(fake, size=size) as (app, pilot):
        await until(pilot, lambda: app.fleet.stats)
        await pilot.press("l")
        await until(pilot, lambda: "[@click=app.quit]x[/]␛" in screen_text(app).split("Audit")[-1])
        assert app.main.selected.ref == ref("0123456789abcdef")
        await looks(app, pilot)
