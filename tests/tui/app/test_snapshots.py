"""How the list and the dialogs over it look: each in three sizes and two themes (`sheet`)."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import NOW, NS, fleet, log_lines, ref, samples, sandbox, screen_text, until
from tests.tui.app.sheet import MIDDLE, SMALL
from tests.tui.app.test_flows import row_of
from textual.widgets import Input

from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Status
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.base.themes import CONTRAST, DARK, MONOCHROME
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen, TooSmallScreen
from sandbox_console.tui.fleet.columns_screen import ColumnsScreen
from sandbox_console.tui.fleet.groups import GroupKey
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.form.secret_dialog import SecretScreen

HOSTILE = "[@click=app.quit]x[/]\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202eevil\u200b"
DEAD = "connection refused at /run/docker.sock"

pytestmark = pytest.mark.timeout(600)
"""Many pictures of one app: 15 s on a quiet machine."""


async def sampled(app, pilot):
    await until(pilot, lambda: len(app.fleet.stats) == 3)


def logs_there(app):
    return lambda: app.size.width < 100 or "step 8 of 9" in screen_text(app)


def says(app, *texts):
    return lambda: all(text in screen_text(app) for text in texts)


async def dialog(pilot, key, kind):
    await pilot.press(key)
    await until(pilot, lambda: isinstance(pilot.app.screen, kind))


async def test_the_list(run_app, sheets):
    async with run_app() as (app, pilot):
        await sampled(app, pilot)
        await sheets(app, pilot, "rows", ready=logs_there(app))
        await pilot.press("space", "j", "j", "space", "j")
        await sheets(app, pilot, "marks", themes=(MONOCHROME, CONTRAST))
        await pilot.press("escape", "g")
        app.main.fleet.set_group("state")
        await until(pilot, lambda: any(row.head for row in app.main.table.rows))
        app.main.fleet.fold(GroupKey("state", "lost"))
        await sheets(app, pilot, "groups", ready=says(app, "▸ lost"))
        app.main.fleet.reset()
        await pilot.press("w")
        await sheets(app, pilot, "every-column")
        await pilot.press("w", "vertical_line")
        await sheets(app, pilot, "side-by-side", sizes=[MIDDLE, (200, 60)])


async def test_the_lists_lines(run_app, sheets):
    async with run_app() as (app, pilot):
        await sampled(app, pilot)
        await pilot.press("9", "escape")
        await pilot.press("z", "Z", "slash", *"exit>3")
        await sheets(app, pilot, "filter-and-faults", ready=says(app, "1 of 6"))
        app.main.fleet.filter_line.input.value = "exit>3 stat=exited"
        await sheets(app, pilot, "filter-not-understood", ready=says(app, "did you mean state?"))
        app.main.fleet.set_filter("nowhere")
        await sheets(app, pilot, "nothing-left", ready=says(app, "Nothing matches"))
        await pilot.press("escape", "z", "Z")
        await pilot.press("colon", *"exitd", "enter")
        await sheets(app, pilot, "command-refused", ready=says(app, "did you mean :exited?"))


async def test_no_sandboxes(run_app, sheets):
    async with run_app(FakeBackend(), ready=False) as (app, pilot):
        await sheets(app, pilot, "empty", ready=says(app, "Press n to create one"))
        await dialog(pilot, "v", TextScreen)
        await sheets(app, pilot, "no-messages")
        await pilot.press("escape", "colon", *"views", "enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await sheets(app, pilot, "no-views")


async def test_backends_that_do_not_answer(run_app, fake, sheets):
    dead = FakeBackend(name="docker", dead=True, reason=DEAD)
    async with run_app(fake, dead) as (app, pilot):
        await sampled(app, pilot)
        await sheets(app, pilot, "one", ready=lambda: says(app, DEAD)() and logs_there(app)())
        await dialog(pilot, "b", TextScreen)
        await sheets(app, pilot, "backends", ready=says(app, "revive it"))
    async with run_app(dead, ready=False) as (app, pilot):
        await sheets(app, pilot, "all", ready=says(app, "No backend answers"))
    slow = FakeBackend(faults={"open": 3600.0})
    async with run_app(slow, ready=False) as (app, pilot):
        await sheets(app, pilot, "connecting", ready=says(app, "Asking"))


async def test_more_than_fits(run_app, sheets):
    long = "a-very-long-name-of-a-sandbox-that-some-tool-made-without-thinking-of-who-reads-it"
    label = {f"example.com/label-{at}": "x" * 60 for at in range(8)}
    rows = [
        sandbox(f"{at:012x}", f"{long}-{at}", list(Status)[at % len(Status)], image=f"registry.example.com/{long}:{at}",
                labels=label, detail=f"its supervisor went away: {long} " * 3)
        for at in range(300)
    ]  # fmt: skip
    async with run_app(FakeBackend(rows, clock=lambda: NOW)) as (app, pilot):
        await pilot.press("S", "g")
        await sheets(app, pilot, ready=lambda: app.size.width < 100 or says(app, "It wrote nothing")())


async def test_read_only_and_audit_unwritable(run_app, sheets):
    async with run_app(read_only=True) as (app, pilot):
        await sampled(app, pilot)
        app.service.audit_log.note_problem("the audit log /x/audit.db cannot be written: no space left on device")
        await sheets(app, pilot, ready=lambda: says(app, "AUDIT LOG UNWRITABLE")() and logs_there(app)())


async def test_hostile_text(run_app, sheets):
    bad = sandbox("0123456789abcdef", HOSTILE, managed=False, image=HOSTILE, labels={HOSTILE: HOSTILE}, maker=HOSTILE)
    gone = sandbox("abcdef\u202e\x1b[2J", "рayments", Status.LOST, detail=HOSTILE)
    logs = {"0123456789abcdef": [LogRecord(int(NOW * NS), Stream.STDOUT, HOSTILE.encode() + b"\n")]}
    fake = FakeBackend([bad, gone], logs=logs, clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await until(pilot, lambda: app.fleet.stats)
        await pilot.press("l")
        assert app.main.selected.ref == ref("0123456789abcdef")
        await sheets(app, pilot, ready=lambda: "[@click=app.quit]x[/]␛" in screen_text(app).split("Audit")[-1])


async def test_too_small(run_app, sheets):
    async with run_app(size=(50, 12)) as (app, pilot):
        await until(pilot, lambda: isinstance(app.screen, TooSmallScreen))
        await sheets(app, pilot, sizes=[(50, 12)])


async def test_dialogs(run_app, fake, sheets):
    fake._capabilities = Capabilities(frozenset(Capability) - {Capability.PAUSE}, {Capability.PAUSE: "no freezer here"})
    async with run_app() as (app, pilot):
        await sampled(app, pilot)
        await until(pilot, logs_there(app))
        for name, key, kind in (
            ("menu", "m", MenuScreen), ("kill", "ctrl+k", ConfirmScreen), ("stop", "x", ConfirmScreen),
            ("columns", "comma", ColumnsScreen), ("help", "question_mark", TextScreen),
        ):  # fmt: skip
            await dialog(pilot, key, kind)
            await sheets(app, pilot, name, ready=logs_there(app) if name in ("menu", "kill", "stop") else lambda: True)
            await pilot.press("escape")
        await pilot.press("l")
        await dialog(pilot, "question_mark", TextScreen)
        await sheets(app, pilot, "help-in-logs", sizes=[SMALL, MIDDLE], themes=[DARK])
        await pilot.press("escape", "escape")
        app.main.table.marks.add([ref("aaaaaaaaaaaa"), ref("cccccccccccc")])
        await dialog(pilot, "equals_sign", TextScreen)
        await sheets(app, pilot, "compare", ready=says(app, "Differs"))


FORM = [SMALL, MIDDLE, (200, 50)]


async def test_form(run_app, sheets):
    async with run_app() as (app, pilot):
        await dialog(pilot, "n", FormScreen)
        await sheets(app, pilot, "new", sizes=FORM)
        wrong = {"name": "bad name!", "memory_mib": "512 apples", "cpus": "0", "egress": "https://x.io/y"}
        for name, text in wrong.items():
            app.screen.query_one(f"#field-{name}", Input).value = text
        await pilot.press("ctrl+s")
        await sheets(app, pilot, "errors", ready=lambda: len(app.screen.query("FormRow.-wrong")) == 4, sizes=FORM)


async def test_form_lists(run_app, fake, sheets):
    async with run_app() as (app, pilot):
        await dialog(pilot, "n", FormScreen)
        row_of(app, "egress").put("api.acme.org *.com *.acme.org https://x.io/y")
        row_of(app, "ports").put("8080:80 0.0.0.0:22:22")
        row_of(app, "secrets").put("GONE")
        app.screen.query_one("#test-host", Input).value = "api.acme.org:8443"
        await sheets(app, pilot, "lists", sizes=FORM)
        await dialog(pilot, "f7", SecretScreen)
        await pilot.press(*"TOKEN", "down", "right", "right")
        await sheets(app, pilot, "secret", sizes=FORM)


async def test_edit(run_app, fake, sheets):
    fake._capabilities = Capabilities(
        frozenset(Capability) - {Capability.EGRESS_ALLOWLIST}, {Capability.EGRESS_ALLOWLIST: "there is no gateway yet"}
    )
    async with run_app() as (app, pilot):
        await dialog(pilot, "e", FormScreen)
        for name, text in {"cpus": "2", "image": "python:3.13", "egress": "example.org"}.items():
            app.screen.query_one(f"#field-{name}", Input).value = text
        await until(pilot, lambda: len(app.screen.query("FormRow.-wrong")) == 1)
        app.screen.query_one("#plan").scroll_visible(animate=False)
        await sheets(app, pilot, sizes=FORM)


@pytest.fixture
def fake():
    return FakeBackend(fleet(), logs=log_lines(), stats=samples(), clock=lambda: NOW)
