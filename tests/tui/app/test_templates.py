"""Templates in the app: stored from the menu, and a form that begins with one, with a line or with a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tui.app.scene import screen_text, until
from textual.widgets import Input, OptionList

from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.form.form_screen import FormScreen


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))


def on(app, kind):
    return lambda: isinstance(app.screen, kind)


async def choose(app, pilot, words: str) -> None:
    """Choose the line of the menu that has these words."""
    await until(pilot, on(app, MenuScreen))
    menu = app.screen.query_one(OptionList)
    at = next(n for n in range(menu.option_count) if words in str(menu.get_option_at_index(n).prompt))
    menu.highlighted = at
    await pilot.press("enter")


async def typed(app, pilot, text: str) -> None:
    await until(pilot, on(app, AskScreen))
    app.screen.query_one(Input).value = text
    await pilot.press("enter")


async def test_a_spec_is_stored_and_a_form_begins_with_it(run_app, fake, tmp_path):
    async with run_app() as (app, pilot):
        one = next(box for box in fake.sandboxes.values() if box.spec is not None)
        app.main.table.move_to(one.ref)
        await pilot.pause()
        await pilot.press("m")
        await choose(app, pilot, "As template")
        await typed(app, pilot, "../hostile")
        await until(pilot, lambda: "is not a template's name" in screen_text(app))
        assert not (tmp_path / "templates").exists()
        await pilot.press("m")
        await choose(app, pilot, "As template")
        await typed(app, pilot, "mine")
        await until(pilot, (tmp_path / "templates" / "mine.toml").exists)
        await pilot.press("ctrl+n")
        await choose(app, pilot, "mine")
        await until(pilot, on(app, FormScreen))
        await until(pilot, lambda: "Filled in from the template mine." in screen_text(app))
        assert app.screen.body.typed["image"] == one.spec.image
        assert "name" not in app.screen.body.typed


async def test_a_docker_run_line_fills_the_form_and_says_what_is_left(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("ctrl+n")
        await choose(app, pilot, "docker run")
        await typed(app, pilot, "docker run --privileged -m 512m --name box -e TOKEN=canary python:3.12 sleep 5")
        await until(pilot, on(app, FormScreen))
        await until(pilot, lambda: "--privileged: a sandbox is never privileged" in screen_text(app))
        given = app.screen.body.typed
        assert (given["name"], given["image"], given["memory_mib"]) == ("box", "python:3.12", "512M")
        assert "canary" not in screen_text(app)


async def test_a_file_fills_the_form_or_says_why_not(run_app, tmp_path):
    (tmp_path / "compose.yaml").write_text("services: {web: {image: nginx}, db: {image: x, extends: {service: y}}}")
    (tmp_path / "bad.toml").write_text("image = ")
    async with run_app() as (app, pilot):
        for words, told in (
            ("compose.yaml#db", "extends is not supported"),
            ("compose.yaml", "2 services: web, db"),
            ("bad.toml", "is not TOML"),
            ("nope.toml", "cannot be read"),
        ):
            await pilot.press("ctrl+n")
            await choose(app, pilot, "A file")
            await typed(app, pilot, f"{tmp_path}/{words}")
            await until(
                pilot, lambda told=told: told in " ".join(screen_text(app).split()) or told in str(app.message_log)
            )
            assert app.screen is app.main
        await pilot.press("ctrl+n")
        await choose(app, pilot, "A file")
        await typed(app, pilot, f"{tmp_path}/compose.yaml#web")
        await until(pilot, on(app, FormScreen))
        assert app.screen.body.typed["image"] == "nginx"


async def test_another_tools_sandbox_fills_the_form(run_app, fake, monkeypatch):
    async def raw(ref):
        return {"Config": {"Image": "postgres:16", "Env": ["A=1", "DB_PASSWORD=canary"]}}

    monkeypatch.setattr(fake, "raw", raw)
    async with run_app() as (app, pilot):
        await pilot.press("slash", *"theirs", "enter", "escape")
        await until(pilot, lambda: app.main.selected and app.main.selected.name == "theirs")
        await pilot.press("ctrl+n")
        await choose(app, pilot, "theirs")
        await until(pilot, on(app, FormScreen))
        await until(pilot, lambda: "Filled in from theirs" in screen_text(app))
        given = app.screen.body.typed
        assert (given.get("name"), given["image"], given["env"]) == (None, "postgres:16", "A=1")
        assert app.screen.body.host == ("fake", "local")
        words = " ".join(screen_text(app).split())
        assert "env DB_PASSWORD: it sounds secret" in words
        assert "canary" not in words
