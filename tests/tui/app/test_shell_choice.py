"""Which shell is opened, as whom, where and with what environment: asked of the guest, and remembered."""

from __future__ import annotations

import json

import pytest
from msgspec import structs
from tests.tui.app.scene import ref, screen_text, until
from tests.tui.app.test_shells import LEAVE, on, shells, typing
from textual.widgets import Input, OptionList

from sandbox_console.errors import UsageError
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.model.shells import SHELLS, distinct
from sandbox_console.service import find_paths
from sandbox_console.tui.shell import shell_flow
from sandbox_console.tui.shell.shell_choice import ShellChoice, ShellChoices, env_line, parse_env
from sandbox_console.tui.shell.shell_dialog import ChoiceScreen

AGENT = ref("aaaaaaaaaaaa")


@pytest.fixture
def guest(fake, monkeypatch):
    """Gives the fake's sandboxes these shells. Returns what the backend was asked to open."""

    def give(*paths):
        async def stat(ref, path):
            from sandbox_console.errors import NotFound

            if path not in paths:
                raise NotFound(path)
            return FileInfo(path, FileKind.FILE, mode=0o755)

        asked = []
        opened = fake.shell

        async def shell(permit, request, secrets):
            asked.append(request)
            return await opened(permit, request, secrets)

        monkeypatch.setattr(fake, "stat", stat)
        monkeypatch.setattr(fake, "shell", shell)
        return asked

    return give


async def test_an_answer_for_a_question_that_was_closed_is_dropped(run_app, guest):
    guest("/bin/sh")
    async with run_app() as (app, pilot):
        await pilot.press("percent_sign")
        await until(pilot, lambda: on(app, ChoiceScreen)() and app.screen.query_one(OptionList).option_count)
        screen = app.screen
        await screen.query(OptionList).remove()
        await screen._ask()
        assert not screen.query(OptionList)


async def test_a_choice_is_asked_of_the_guest_opened_recorded_and_remembered(run_app, guest):
    asked = guest("/bin/sh", "/usr/bin/zsh", "/usr/bin/sh")
    async with run_app() as (app, pilot):
        await pilot.press("percent_sign")
        await until(pilot, lambda: on(app, ChoiceScreen)() and app.screen.query_one(OptionList).option_count == 2)
        assert [one.id for one in app.screen.query_one(OptionList).options] == ["/usr/bin/zsh", "/bin/sh"]
        for name, value in (("workdir", "/srv"), ("env", "LANG=C API_TOKEN=hunter2 EDITOR='vim -R'")):
            app.screen.query_one(f"#{name}", Input).value = value
        await pilot.press("enter")
        await until(pilot, typing(app))
        assert (asked[0].shell, asked[0].workdir, asked[0].env["EDITOR"]) == ("/usr/bin/zsh", "/srv", "vim -R")
        [row] = [one for one in await app.service.history(AuditQuery()) if one.attempt.action == "shell"]
        assert row.attempt.body["workdir"] == "/srv"
        assert row.attempt.body["env"] == ["API_TOKEN", "EDITOR", "LANG"]
        assert "hunter2" not in json.dumps(row.attempt.body)
        kept = (find_paths().state / "shells.json").read_text()
        assert "hunter2" not in kept
        await pilot.press(LEAVE, "escape", "s", LEAVE, "dollar_sign", LEAVE, "n")
        await until(pilot, lambda: len(asked) == 2)
        assert (asked[1].shell, asked[1].workdir, dict(asked[1].env)) == (
            "/usr/bin/zsh", "/srv", {"LANG": "C", "EDITOR": "vim -R"},
        )  # fmt: skip
        assert len([*shells(app)]) == 2


async def test_an_image_without_a_shell_says_what_can_be_done(run_app, guest):
    guest()
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press("percent_sign")
        await until(pilot, lambda: "has no shell" in screen_text(app))
        text = " ".join(screen_text(app).split())
        assert "Bring this machine's busybox" in text
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        assert not [*shells(app)]


async def test_a_shell_is_brought_to_an_image_without_one(run_app, guest, fake, monkeypatch):
    asked, carried = guest(), []

    async def with_busybox(console, request, consent):
        carried.append(request)
        return structs.replace(request, shell="/tmp/brought/sh")

    monkeypatch.setattr(shell_flow, "with_busybox", with_busybox)
    async with run_app() as (app, pilot):
        await pilot.press("percent_sign")
        await until(pilot, lambda: "Bring this machine's busybox" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, typing(app))
        assert (len(carried), asked[0].shell) == (1, "/tmp/brought/sh")
        kept = json.loads((find_paths().state / "shells.json").read_text())
        assert kept[str(AGENT)] == {"busybox": True}


async def test_what_cannot_be_is_told_and_loses_nothing(run_app, guest):
    guest("/bin/sh")
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press("percent_sign")
        await until(pilot, on(app, ChoiceScreen))
        app.screen.query_one("#workdir", Input).value = "srv"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "is not absolute" in screen_text(app))
        app.screen.query_one("#workdir", Input).value = ""
        app.screen.query_one("#env", Input).value = "1X=2"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "is no NAME=VALUE" in screen_text(app))
        assert app.screen.query_one("#env", Input).value == "1X=2"


@pytest.mark.parametrize("text", ["A", "A=1 B", "=x", "1A=2", "A-B=1", "A='x", 'A=1 "B'])
def test_environments_that_are_none(text):
    with pytest.raises(UsageError):
        parse_env(text)


def test_environments_go_round():
    env = {"A": "", "B_1": "two words", "C": "it's", "D": "$X `y` \\"}
    assert parse_env(env_line(env)) == env


@pytest.mark.parametrize(
    "damaged", ["", "[]", '{"fake/local/aaaaaaaaaaaa": 7}', '{"fake/local/aaaaaaaaaaaa": {"env": []}}']
)
def test_a_damaged_file_is_no_choice(tmp_path, damaged):
    (tmp_path / "shells.json").write_text(damaged)
    choices = ShellChoices(tmp_path, lambda text: False)
    assert choices.of(AGENT) == ShellChoice()
    choices.remember(AGENT, ShellChoice(shell="/bin/sh"))
    assert choices.of(AGENT) == ShellChoice(shell="/bin/sh")
    assert (tmp_path / "shells.json").stat().st_mode & 0o777 == 0o600


def test_known_secrets_and_names_that_sound_secret_are_not_stored(tmp_path):
    choices = ShellChoices(tmp_path, lambda text: "canary" in text)
    choices.remember(AGENT, ShellChoice(env={"A": "canary", "PASSWORD": "x", "URL": "http://u:p@h/", "LANG": "C"}))
    assert choices.of(AGENT).env == {"LANG": "C"}
    assert "canary" not in (tmp_path / "shells.json").read_text()


@pytest.mark.parametrize("field", ["shell", "user", "workdir"])
def test_what_may_be_a_secret_is_not_stored_in_any_field(tmp_path, field):
    choices = ShellChoices(tmp_path, lambda text: "canary" in text)
    choices.remember(AGENT, ShellChoice(**{field: "/canary"}, env={"canary": "1", "LANG": "C"}, keep=True))
    assert choices.of(AGENT) == ShellChoice(env={"LANG": "C"}, keep=True)
    assert "canary" not in (tmp_path / "shells.json").read_text()


def test_one_path_of_each_shell_the_best_first():
    assert SHELLS[0] == "/bin/bash"
    assert distinct(["/bin/bash", "/usr/bin/bash", "/usr/bin/fish", "/bin/sh"]) == [
        "/bin/bash",
        "/usr/bin/fish",
        "/bin/sh",
    ]
