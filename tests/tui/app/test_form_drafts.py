"""What was typed into a form and not applied is there again, whatever happened, but for what may be a secret."""

from __future__ import annotations

import json
import signal
import stat
import time

import pytest
from tests.cli.conftest import Cli, cli
from tests.cli.terminal import Terminal
from tests.support.require import missing
from tests.tui.app.scene import screen_text, until
from tests.tui.app.test_flows import fill, on
from textual.widgets import Button, Select

from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import find_paths
from sandbox_console.service.config import Config, TuiOptions
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.text_screen import TooSmallScreen
from sandbox_console.tui.form.form_draft import DraftFile, without_secrets
from sandbox_console.tui.form.form_rows import FormRow
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.form.form_with_draft import _whose

__all__ = ["cli"]


def drafts():
    return sorted((find_paths().state / "drafts").glob("*.json"))


def kept():
    return [json.loads(path.read_text())["texts"] for path in drafts()]


async def opened(app, pilot, key="n"):
    await pilot.press(key)
    await until(pilot, on(app, FormScreen))
    await until(pilot, lambda: app.screen._learned)
    return app.screen


def text(form, name):
    return next(row for row in form.query(FormRow) if row.field.name == name).text


@pytest.mark.parametrize("key", ["n", "e"])
async def test_a_draft_is_kept_restored_and_taken_back(run_app, fake, key):
    async with run_app() as (app, pilot):
        form = await opened(app, pilot, key)
        before = text(form, "egress")
        await fill(app, pilot, cpus="3", egress="a.example b.exa", workspace="/srv/x")
        await pilot.press("escape")
        await until(pilot, on(app, ConfirmScreen))
        assert {"Go on", "Keep it", "Discard"} == {str(one.label) for one in app.screen.query(Button)}
        await pilot.press("k")
        await until(pilot, lambda: app.screen is app.main)
        form = await opened(app, pilot, key)
        assert (text(form, "cpus"), text(form, "egress")) == ("3", "a.example b.exa")
        await until(pilot, lambda: "Restored your unsaved changes of" in screen_text(app))
        assert text(form, "workspace") == "/srv/x"
        await pilot.press("ctrl+r")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: app.screen is form and text(form, "egress") == before)
        assert drafts() == []
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        assert fake.permits == []


async def test_a_discarded_draft_and_an_applied_one_are_gone(run_app, fake):
    async with run_app() as (app, pilot):
        await opened(app, pilot)
        await fill(app, pilot, name="web")
        await until(pilot, lambda: kept() == [{"name": "web"}])
        [path] = drafts()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        await pilot.press("escape")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: app.screen is app.main)
        assert drafts() == []
        form = await opened(app, pilot)
        assert text(form, "name") == ""
        await fill(app, pilot, name="web", image="python:3.12")
        await until(pilot, lambda: len(drafts()) == 1)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.screen is app.main and any(one.name == "web" for one in fake.sandboxes.values()))
        assert list((find_paths().state / "drafts").iterdir()) == []


async def test_two_open_forms_do_not_share_a_draft(run_app):
    async with run_app() as (app, pilot):
        await opened(app, pilot)
        await fill(app, pilot, name="one")
        await until(pilot, lambda: kept() == [{"name": "one"}])
        other = DraftFile(find_paths().state / "drafts", f"{app.service.audit_log.actor}\0")
        assert other.take() is None
        other.write({"name": "two"}, None, time.time(), str)
        assert sorted(one["name"] for one in kept()) == ["one", "two"]
        other.close()
        mine = DraftFile(find_paths().state / "drafts", f"{app.service.audit_log.actor}\0")
        assert mine.take().texts == {"name": "two"}
        mine.drop()
        assert kept() == [{"name": "one"}]


async def test_a_resize_to_nothing_and_a_lost_backend_leave_what_was_typed(run_app, fake):
    async with run_app() as (app, pilot):
        form = await opened(app, pilot)
        await fill(app, pilot, name="web", image="python:3.12", env="A='b c'")
        await pilot.resize_terminal(20, 5)
        await until(pilot, on(app, TooSmallScreen))
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: app.screen is form)
        await fake.die("the engine went away")
        await until(pilot, lambda: not app.fleet.health[("fake", "local")].ok)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "the engine went away" in screen_text(app))
        assert form.query_one("#backend", Select).value == ("fake", "local")
        assert (text(form, "name"), text(form, "env")) == ("web", "A='b c'")
        assert kept() == [{"name": "web", "image": "python:3.12", "env": "'A=b c'"}]
        await fake.revive()
        await until(pilot, lambda: app.fleet.health[("fake", "local")].ok)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: any(one.name == "web" for one in fake.sandboxes.values()))


async def test_a_form_that_found_no_backend_offers_one_that_comes(run_app, fake):
    await fake.die("not started yet")
    async with run_app(ready=False) as (app, pilot):
        await until(pilot, lambda: ("fake", "local") in app.fleet.health)
        form = await opened(app, pilot)
        assert form.body.host is None
        await fill(app, pilot, name="web", image="python:3.12")
        await fake.revive()
        await until(pilot, lambda: form.body.host == ("fake", "local"))
        assert text(form, "name") == "web"


async def test_a_draft_keeps_the_chosen_backend_even_while_it_does_not_answer(run_app, fake):
    other = FakeBackend(name="other")
    async with run_app(fake, other) as (app, pilot):
        form = await opened(app, pilot)
        await fill(app, pilot, name="web")
        form.query_one("#backend", Select).value = ("other", "local")
        await until(pilot, lambda: json.loads(drafts()[0].read_text())["host"] == ["other", "local"])
        await pilot.press("escape")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("k")
        await until(pilot, lambda: app.screen is app.main)
        await other.die("not started yet")
        await until(pilot, lambda: not app.fleet.health[("other", "local")].ok)
        form = await opened(app, pilot)
        assert form.body.host == ("other", "local")
        assert text(form, "name") == "web"


CANARY = "canary-51aa9e0c77"


async def test_no_secret_is_in_a_draft(run_app, monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFT_CANARY", CANARY)
    config = Config(
        backend="fake", tui=TuiOptions(stats_interval_s=3600.0), secrets={"C": SecretSource(source="env:DRAFT_CANARY")}
    )
    async with run_app(config=config) as (app, pilot):
        await opened(app, pilot)
        await fill(app, pilot, name="web", labels=f"a={CANARY} b=2", command=f"curl -H 'X: {CANARY}' x", workdir=f"/{CANARY}",
                   env=f"FINE={CANARY} API_TOKEN=hunter2hunter2 LANG=C OPEN='un")  # fmt: skip
        await until(pilot, lambda: kept() != [] and "env" in kept()[0])
        assert kept() == [{"name": "web", "labels": "b=2", "env": "LANG=C OPEN=un"}]
        for path in find_paths().state.rglob("*"):
            if path.is_file():
                assert CANARY.encode() not in path.read_bytes(), path
                assert b"hunter2" not in path.read_bytes(), path
        await pilot.press("escape")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("k")
        await until(pilot, lambda: app.screen is app.main)
        await opened(app, pilot)
        words = " ".join(screen_text(app).split())
        for lacking in ("Labels (a)", "Variables (FINE, API_TOKEN)", "Command", "Folder"):
            assert lacking in words, words


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", True),
        ("   ", True),
        ("python -m http.server", True),
        ("sh -c 'echo ${TOKEN}'", True),
        ("curl https://u:pa55word@x.io/", False),
        ("run --api-token abcdefgh", False),
        ("run --api-token=abcdefgh", False),
        ("run --password 'open", False),
        ("env PASSWORD=x run", False),
        ("run --token --verbose", True),
    ],
)
def test_a_command_that_may_hold_a_secret_is_left_out(text, kept):
    draft = without_secrets({"command": text}, None, 0.0, str)
    assert draft.texts == ({"command": text} if kept else {})
    assert draft.left_out == ({} if kept else {"command": ()})


async def test_an_edit_keeps_the_variables_that_a_draft_may_not_have(run_app, fake):
    from msgspec import structs

    before = fake.sandboxes["aaaaaaaaaaaa"]
    fake.sandboxes["aaaaaaaaaaaa"] = structs.replace(
        before, spec=structs.replace(before.spec, env={"API_TOKEN": "old-value", "LANG": "C"})
    )
    async with run_app() as (app, pilot):
        await opened(app, pilot, "e")
        await fill(app, pilot, env="API_TOKEN=old-value LANG=de")
        await until(pilot, lambda: kept() == [{"env": "LANG=de"}])
        await pilot.press("escape")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("k")
        await until(pilot, lambda: app.screen is app.main)
        form = await opened(app, pilot, "e")
        assert set(text(form, "env").split()) == {"API_TOKEN=old-value", "LANG=de"}


@pytest.mark.skipif(bool(missing("bubblewrap")), reason=missing("bubblewrap") or "-")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_killed_console_loses_no_key(cli: Cli, signum: signal.Signals) -> None:
    with Terminal(cli, "--backend", "bubblewrap") as terminal:
        terminal.size(100, 30)
        terminal.until(b"New")
        terminal.type(b"n")
        terminal.until(b"New sandbox")
        terminal.type(b"web-1\t\thost\tsleep 60")
        folder = cli.home / "state" / "drafts"
        wanted = {"name": "web-1", "image": "host", "command": "sleep 60"}
        cli.until(
            lambda: [json.loads(one.read_text())["texts"] for one in folder.glob("*.json")] == [wanted], "no draft"
        )
        terminal.process.send_signal(signum)
        terminal.read_to_end()
    with Terminal(cli, "--backend", "bubblewrap") as terminal:
        terminal.size(100, 30)
        terminal.until(b"New")
        terminal.type(b"n")
        terminal.until(b"Restored your unsaved changes")
        terminal.until(b"web-1")


def test_a_draft_is_a_persons_in_every_session_and_nobody_elses() -> None:
    actors = ("browser:ada.1a@::1", "browser:bob.1a@::1", "browser:1a@::1", "root@host")
    assert len({_whose(actor) for actor in actors}) == len(actors)
    assert _whose("browser:ada.1a@::1") == _whose("browser:ada.2b@10.0.0.7")
    assert _whose("browser:1a@::1") == _whose("browser:2b@::1")
