"""Secrets are chosen in the form, and a new one is defined without leaving it."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from tests.tui.app.scene import NOW, screen_text, until
from tests.tui.app.test_flows import on, row_of
from textual.widgets import Button, Input, Static

from sandbox_console.model.audit import AuditQuery
from sandbox_console.secrets import keyrings
from sandbox_console.service import find_paths, open_console
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.form.entry_list import EntryList
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.form.secret_dialog import Choices, SecretScreen

CANARY = "canary-8d3a55f0e1"


@pytest.fixture
def run(fake, monkeypatch):
    monkeypatch.setenv("SC_ONE", CANARY)

    @asynccontextmanager
    async def run(text="[tui]\nstats_interval_s = 3600\n", size=(120, 40)):
        path = find_paths().config_file
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)
        async with open_console(backends=[fake]) as console:
            app = ConsoleApp(console, clock=lambda: NOW)
            async with app.run_test(size=size, notifications=True) as pilot:
                await until(pilot, lambda: app.fleet.sandboxes)
                await pilot.press("n")
                await until(pilot, on(app, FormScreen))
                yield app, pilot

    return run


async def test_by_keys_alone_one_is_defined_and_chosen(run, fake, tmp_path):
    async with run("# mine\n[tui]\nstats_interval_s = 3600\n") as (app, pilot):
        form = app.screen
        await pilot.press(*"web", "f7")
        await until(pilot, on(app, SecretScreen))
        await pilot.press(*"SC_ONE", "down", "down", "down", *"a.example")
        await until(pilot, lambda: "It can be read" in screen_text(app))
        assert "hosts = [" in screen_text(app)
        assert CANARY not in screen_text(app)
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is form)
        await until(pilot, lambda: "● can be read" in screen_text(app))
        assert row_of(app, "secrets").text == "SC_ONE"
        assert form.query_one("#field-name", Input).value == "web"
        notes = form.query_one("#secret-notes", Static)
        await until(pilot, lambda: "SC_ONE is meant for a.example, which egress does not allow" in str(notes.content))
        text = find_paths().config_file.read_text()
        assert text.startswith("# mine\n[tui]\n")
        assert '[secrets.SC_ONE]\nfrom = "env:SC_ONE"' in text
        assert [one.attempt.action for one in await app.service.history(AuditQuery())] == ["define-secret"]
        assert not [text for _, _, text in app.message_log if "Applied now" in text]  # one's own change is no news
        await pilot.press("space")  # the list has the focus
        await until(pilot, lambda: row_of(app, "secrets").text == "")
        await pilot.press("space")
        await until(pilot, lambda: row_of(app, "secrets").text == "SC_ONE")


async def test_by_the_mouse_one_is_defined_and_chosen(run):
    async with run() as (app, pilot):
        form = app.screen
        await pilot.click("#new-secret")
        await until(pilot, on(app, SecretScreen))
        app.screen.query_one("#secret-name", Input).value = "TOKEN"
        await pilot.click(app.screen.query_one("#secret-kind", Choices).children[1])
        await until(pilot, lambda: app.screen.query_one("#secret-kind", Choices).at == 1)
        app.screen.query_one("#secret-from", Input).value = "/nowhere/at/all"
        await until(pilot, lambda: "! secret 'TOKEN': /nowhere/at/all cannot be read" in screen_text(app))
        await pilot.click("#define")
        await until(pilot, lambda: app.screen is form and row_of(app, "secrets").text == "TOKEN")
        await pilot.click(form.query_one("#field-secrets", EntryList), offset=(1, 0))
        await until(pilot, lambda: row_of(app, "secrets").text == "")


async def test_a_value_is_masked_and_goes_into_the_keyring_only(run, monkeypatch, tmp_path):
    kept = {}

    async def store(text, value, timeout_s):
        kept[text] = value

    monkeypatch.setattr(keyrings, "store", store)
    async with run() as (app, pilot):
        form = app.screen
        await pilot.press("f7")
        await until(pilot, on(app, SecretScreen))
        await pilot.press(*"TOKEN", "down", "right", "right", "down", "down", *CANARY)
        await until(pilot, lambda: 'from = "keyring:sandbox-console/TOKEN"' in screen_text(app))
        assert app.screen.query_one("#secret-value", Input).value == CANARY
        assert CANARY not in screen_text(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.screen is form)
        assert kept == {"sandbox-console/TOKEN": CANARY}
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not form)
        await pilot.press("k")
        await until(pilot, lambda: app.screen is app.main)
    for path in find_paths().config_file.parent.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("name", "reference", "hosts", "why"),
    [
        ("", "X", "", "name: use letters"),
        ("has-dash", "X", "", "name: use letters"),
        ("SC_ONE", "", "", "name: SC_ONE is defined already"),
        ("T", "two words", "", "from: this is not a variable's name"),
        ("T", "ghp_" + "a1" * 20, "", "from: it looks like a GitHub token"),
        ("T", "X", "https://a.example/x", "hosts: 'https://a.example/x' has a scheme"),
    ],
)
async def test_what_is_wrong_is_told_beside_the_line_and_not_written(run, name, reference, hosts, why):
    async with run('[secrets.SC_ONE]\nfrom = "env:SC_ONE"\n') as (app, pilot):
        before = find_paths().config_file.read_text()
        await pilot.press("f7")
        await until(pilot, on(app, SecretScreen))
        for one, text in (("name", name), ("from", reference), ("hosts", hosts)):
            app.screen.query_one(f"#secret-{one}", Input).value = text
        await until(pilot, lambda: why in screen_text(app))
        await pilot.press("enter")
        await pilot.pause(0.2)
        assert isinstance(app.screen, SecretScreen)
        assert app.screen.query_one(f"#secret-{why.partition(':')[0]}").has_class("-wrong")
        await pilot.press("escape")
        await until(pilot, on(app, FormScreen))
        assert find_paths().config_file.read_text() == before


async def test_an_unwritable_configuration_is_told_and_nothing_is_lost(run, tmp_path):
    async with run() as (app, pilot):
        path = find_paths().config_file
        other = tmp_path / "elsewhere.toml"
        path.rename(other)
        path.symlink_to(other)
        await pilot.press("f7")
        await until(pilot, on(app, SecretScreen))
        await pilot.press(*"SC_ONE", "enter")
        await until(pilot, lambda: "is a link, and is not written through" in " ".join(screen_text(app).split()))
        await pilot.press("ctrl+t")  # as the check does that comes a moment after what is typed
        await until(pilot, lambda: "It can be read" in screen_text(app))
        assert "is a link, and is not written through" in " ".join(screen_text(app).split())
        assert app.screen.query_one("#secret-name", Input).value == "SC_ONE"
        assert "SC_ONE" not in other.read_text()
        assert app.screen.query_one("#define", Button)
        await pilot.press("X")
        await until(pilot, lambda: "is a link" not in screen_text(app))


async def test_names_that_are_not_defined_are_listed_and_letters_go_to_names(run):
    text = "".join(f'[secrets.{one}]\nfrom = "env:{one}"\n' for one in ("ALPHA", "BETA", "GAMMA"))
    async with run(text) as (app, pilot):
        row = row_of(app, "secrets")
        row.put("GONE")
        await until(pilot, lambda: "GONE  ✕ not defined in the config" in screen_text(app))
        row.focus_entry()
        await pilot.press("g", "space")
        await until(pilot, lambda: row.text == "GONE GAMMA")
        await pilot.press("g", "space")
        await until(pilot, lambda: row.text == "GAMMA")
