"""Keys: the config's choice is what works and what is shown; conflicts are refused before anything is drawn."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.tui.app.scene import fleet, sandbox, screen_text, until
from textual.binding import Binding
from textual.widgets import Input

from sandbox_console.errors import ConfigError
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import TuiOptions
from sandbox_console.service.config import Config
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.audit.audit_screen import AuditScreen
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.keys import keymap, page_keys
from sandbox_console.tui.keys.key_names import long_key, short_key
from sandbox_console.tui.keys.main_keys import MAIN_KEYS, list_keys
from sandbox_console.tui.logs.logs_tab import LogsPane
from sandbox_console.tui.palette import ConsoleCommands
from sandbox_console.tui.state.verbs import DRIFT
from sandbox_console.tui.widgets.log.log_view import LogView


def options(**more):
    return TuiOptions(**more)


def config(**more):
    return Config(backend="fake", tui=TuiOptions(**more))


def on(app, kind):
    return lambda: isinstance(app.screen, kind)


@pytest.mark.parametrize("name", keymap.KEYMAPS)
def test_no_keymap_has_conflicts(name):
    keymap.load(options(keymap=name))


def test_every_key_of_the_list_has_an_id_but_the_one_that_leaves_a_shell():
    nameless = [one.action for one in MAIN_KEYS if isinstance(one, Binding) and not one.id]
    assert nameless == ["leave_terminal"]
    ids = [one.id for one in list_keys()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"stop": "r"}, ("stop", "restart", "the key r")),
        ({"stop": "j"}, ("stop", "moving in the list (Down)")),
        ({"stop": "ctrl+p"}, ("stop", "the palette")),
        ({"stop": "space"}, ("stop", "mark")),
        ({"stop": "!", "kill": "exclamation_mark"}, ("stop", "kill")),
        ({"stopp": "X"}, ("no action 'stopp'",)),
        ({"stop": "hyper+x"}, ("hyper+x",)),
        ({"stop": "fn99"}, ("'fn99' is not a key",)),
        ({"stop": "f5,f5"}, ("stop",)),
        ({"logs-wrap": "t"}, ("logs-wrap", "logs-timestamps", "the key t")),
        ({"files-download": "j"}, ("files-download", "moving about (Down)")),
        ({"inspect-search": "enter"}, ("inspect-search", "moving about")),
        ({"audit-verify": "ctrl+q"}, ("audit-verify", "quit")),
        ({"audit-verify": "h"}, ("audit-verify", "Back")),
        ({"logs-wrp": "f5"}, ("no action 'logs-wrp'",)),
    ],
)
def test_what_cannot_be_is_refused_by_name(keys, words):
    with pytest.raises(ConfigError) as caught:
        keymap.load(options(keys=keys))
    for word in words:
        assert word in caught.value.message
    assert caught.value.hint


IDS_OF_0_1 = """
logs-up logs-down logs-page-up logs-page-down logs-left logs-right logs-oldest-line logs-follow logs-follow-on-off logs-timestamps logs-wrap logs-search logs-filter logs-next-match logs-previous-match logs-select-line-above logs-select-line-below logs-json-in-full logs-json-in-short-on-off logs-put-a-mark logs-mark-before logs-copy-the-line logs-copy-the-page logs-logs-of-removed-ones logs-save logs-last-1-min logs-last-5-min logs-last-15-min logs-last-30-min logs-last-60-min
spec-up spec-down spec-top spec-end
inspect-search inspect-next-match inspect-previous-match inspect-raw-or-tree inspect-ask-anew
files-folder-above files-download files-upload files-go-to-a-path files-look-anew
hosts-allow hosts-deny hosts-denials-only-all hosts-draft
draft-allow-host draft-deny-host draft-changes-only-all draft-apply draft-as-commands draft-start-over draft-back draft-help
columns-show-hide columns-up columns-down columns-narrower columns-wider columns-its-own-width columns-the-usual-ones columns-done
form-create-apply form-close form-next-field form-field-before
pulse-backends pulse-egress-inbox pulse-audit pulse-back pulse-help
results-again results-no-more results-copy results-back results-help
audit-filter audit-trouble-only audit-go-to-the-sandbox audit-verify audit-older audit-back audit-help
images-pull images-cancel-a-pull images-remove images-prune images-copy-its-name
snapshots-take-of-the-selected-sandbox snapshots-restore snapshots-remove
""".split()  # noqa: SIM905 - as people have them in their configs, one place a line; none may ever go


@pytest.mark.parametrize("scope", page_keys.PAGE_KEYS)
def test_a_config_with_the_ids_of_0_1_gives_their_actions_other_keys(scope):
    old = [one for one in IDS_OF_0_1 if one.startswith(f"{scope}-")]
    keys = [f"{modifier}+f{number}" for modifier in ("shift", "alt") for number in range(1, 25)]
    found = keymap.load(options(keys=dict(zip(old, keys, strict=False))))
    today = [one.id for one in page_keys.named(scope)][: len(old)]  # what came later stands behind
    assert found.changed == dict(zip(today, keys, strict=False))


def test_an_old_id_and_its_new_one_are_not_both_given():
    with pytest.raises(ConfigError, match="logs-put-a-mark is the old name of logs-mark") as caught:
        keymap.load(options(keys={"logs-put-a-mark": "f5", "logs-mark": "f6"}))
    assert caught.value.hint


def test_an_unknown_id_is_an_error_wherever_a_key_is_asked_for():
    for unknown in ("logs-put-a-marker", "logs-put-a-mark", "stopp", ""):
        with pytest.raises(KeyError):
            keymap.key_of(None, unknown)
        with pytest.raises(KeyError):
            keymap.load(options()).first(unknown)
    assert keymap.key_of(None, "audit-log") == "h"


def test_a_near_name_is_hinted():
    with pytest.raises(ConfigError) as caught:
        keymap.load(options(keys={"restrat": "f5"}))
    assert "restart" in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        keymap.load(options(keys={"logs-wrpa": "f5"}))
    assert "logs-wrap" in caught.value.hint


@pytest.mark.parametrize("scope", page_keys.PAGE_KEYS)
def test_every_key_inside_has_one_id_and_may_swap_with_its_neighbour(scope):
    found = list(page_keys.named(scope))
    assert len({one.id for one in found}) == len(found) > 1
    keys = {one.id: f"f{at + 13}" for at, one in enumerate(found[:12])}
    assert keymap.load(options(keys=keys)).changed == keys


async def test_a_key_inside_logs_and_tabs_is_another_and_the_help_and_hints_tell_it(run_app):
    chosen = {"logs-wrap": "W", "files-download": "f7", "inspect-raw-or-tree": "f8"}
    async with run_app(config=config(keys=chosen)) as (app, pilot):
        await pilot.press("l")
        await until(pilot, lambda: isinstance(app.focused, LogView))
        before = app.focused.look.wrap
        await pilot.press("w")
        assert app.focused.look.wrap is before
        await pilot.press("W")
        assert app.focused.look.wrap is not before
        await pilot.press("question_mark")
        await until(pilot, on(app, TextScreen))
        assert re.search(r"\bW +Wrap\b", app.screen._text.plain)
        await pilot.press("escape", "escape", "6")
        await until(pilot, lambda: "f7 download" in screen_text(app))


def test_keys_are_swapped_given_away_and_taken():
    found = keymap.load(options(keys={"stop": "s", "shell": "x", "kill": "", "filter": "/,f3", "copy": "ctrl+t"}))
    assert found.keys["stop"] == ("s",)
    assert found.keys["shell"] == ("x",)
    assert found.keys["kill"] == ()
    assert found.first("kill") == ""
    assert found.keys["filter"] == ("slash", "f3")
    assert [short_key(key) for key in ("slash", "ctrl+k", "equals_sign", "f3", "")] == ["/", "^k", "=", "f3", ""]
    assert [long_key(key) for key in ("slash", "ctrl+e", "shift+up", "f3", "")] == ["/", "Ctrl+E", "Shift+↑", "f3", ""]


NAMES_A_KEY = re.compile(
    r"(?:^|[.:;,(]\s+|\s{2,}|[Pp]ress )([B-HJ-Zb-z=]|Ctrl\+[^]]|Space)( [a-z]+s\b| again| to | on |$)"
)


def test_no_text_names_a_key_that_a_config_can_change():
    """They go through `keymap.hint`. What is fixed everywhere (Enter, Esc of a dialog, Ctrl+Y, Ctrl+]) may be named."""
    found = []
    for path in Path(keymap.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text())
        told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
                named = NAMES_A_KEY.search(node.value)
                if named and named[1] not in ("Ctrl+Y", node.value):
                    found.append(f"{path.name}:{node.lineno} {node.value!r}")
    assert not found


async def test_every_hint_names_the_key_that_holds(run_app, fake):
    chosen = {
        "create": "f3", "faults": "f4", "managed": "f5", "back": "escape,f6", "backends": "f7", "shell": "f8",
        "merge-logs": "f9", "compare": "f10", "menu": "f11", "bulk-results": "f12", "edit": "ctrl+x",
        "logs-put-a-mark": "f3", "hosts-draft": "f4", "images-pull": "", "columns-show-hide": "f5",
    }  # fmt: skip
    spec = SandboxSpec("bare", "python:3.12")
    fake.sandboxes = {one.ref.id: one for one in (*fleet(), sandbox("0" * 12, "bare", spec=spec))}
    async with run_app(config=config(keys=chosen)) as (app, pilot):

        async def says(*keys, words):
            await pilot.press(*keys)
            await until(pilot, lambda: words in screen_text(app))

        await says("f12", words="on several sandboxes has run yet: Space marks.")
        await says("f10", words="press f10 again")
        await says("space", words="f11 actions  Esc unmarks")
        await says("j", "space", "f9", words="f9 goes back to one.")
        await says("l", "M", words="There is no mark; f3 sets one.")
        await says("escape", "escape", "2", words="f8 or Enter opens one")
        await says("escape", "slash", *"bare", "enter", "o", words="Ctrl+X edits its spec")
        await says("escape", "escape", "f4", "f5", "slash", *"nowhere", "enter", words="f4 shows what is well too")
        assert "f5 shows what others made too" in screen_text(app)
        await says("comma", words="f5 shows")
        await says("escape", "P", words="No images yet." if not fake.images else "Images")
        assert not re.search(r"\bp pulls", screen_text(app))
    async with run_app(FakeBackend(), config=config(keys=chosen), ready=False) as (app, pilot):
        await until(pilot, lambda: "Press f3 to create one" in screen_text(app))
        await pilot.press("u")
        await until(pilot, lambda: "Press f3 on the list" in screen_text(app))
    async with run_app(FakeBackend(dead=True), config=config(keys=chosen), ready=False) as (app, pilot):
        await until(pilot, lambda: "f7 shows the full reason" in screen_text(app))


async def test_a_hint_in_a_tab_names_no_key_that_the_tab_takes(run_app, fake):
    chosen = {"merge-logs": "f9,J", "bulk-results": "", "edit": "f8"}
    async with run_app(config=config(keys=chosen)) as (app, pilot):
        await pilot.press("l")
        await until(pilot, lambda: isinstance(app.focused, LogView))
        logs = app.focused
        assert keymap.key_of(logs, "merge-logs") == "f9"
        assert keymap.key_of(logs, "shell") == "", "s is something else here"
        assert keymap.hint(logs, "menu", "lists all") == "", "m puts a mark"
        assert keymap.key_of(logs, "edit") == "f8"
        assert keymap.key_of(logs, "logs-wrap") == "w"
        assert keymap.key_of(app.main, "shell") == "s"
    swapped = {"merge-logs": "J,f9", "bulk-results": "", "logs-json-in-short-on-off": "ctrl+j"}
    async with run_app(config=config(keys=swapped)) as (app, _):
        assert keymap.key_of(app.main.detail.query_one(LogView), "merge-logs") == "J", "the logs gave it away"


async def test_help_names_every_place_and_no_key_that_was_taken_away(run_app, fake):
    async with run_app(size=(120, 50), config=config(keys={"kill": "", "logs-wrap": ""})) as (app, pilot):
        await pilot.press("6")
        await until(pilot, lambda: app.main.detail.has_focus_within)
        await pilot.press("question_mark")
        await until(pilot, on(app, TextScreen))
        text = app.screen._text.plain
        assert "In the files" in text
        assert "Pane" not in text
        assert "no-key" not in text
        assert "Draft egress rules " in text
        assert re.search(r"Up +\S+ \S+ +Last", app.screen._made(64).plain), "two columns of what 80 cells leave"
        narrow = app.screen._made(50).plain.partition("Terminal ")[0].splitlines()
        assert max(map(len, narrow)) <= 50, "one column where there is no room for two"
        assert not any("…" in line for line in narrow)
        await pilot.press("escape", "escape", "slash")
        await until(pilot, lambda: isinstance(app.focused, Input))
        await pilot.press("question_mark", "f1")
        await until(pilot, on(app, TextScreen))
        assert "In the line" in app.screen._text.plain
        assert app.main.fleet.filter_line.input.value == "?", "there ? is a letter"


async def test_a_remapped_key_acts_and_the_footer_menu_and_help_show_it(run_app):
    async with run_app(config=config(keys={"stop": "f5", "help": "f1", "kill": ""})) as (app, pilot):
        await until(pilot, lambda: "f1 Help" in screen_text(app).splitlines()[-1])
        await pilot.press("x", "ctrl+k", "question_mark")
        assert app.screen is app.main
        await pilot.press("f5")
        await until(pilot, on(app, ConfirmScreen))
        await until(pilot, lambda: "Stop agent?" in screen_text(app))
        await pilot.press("escape", "m")
        await until(pilot, on(app, MenuScreen))
        await until(pilot, lambda: "f5  Stop" in screen_text(app))
        await pilot.press("f5")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("escape", "f1")
        await until(pilot, on(app, TextScreen))
        assert any("f5" in line and "Stop" in line for line in app.screen._text.plain.splitlines())


async def test_lazydocker_habits(run_app):
    async with run_app(config=config(keymap="lazydocker")) as (app, pilot):
        await pilot.press("s")
        await until(pilot, on(app, ConfirmScreen))
        await until(pilot, lambda: "Stop agent?" in screen_text(app))
        await pilot.press("escape", "d")
        await until(pilot, on(app, ConfirmScreen))
        await until(pilot, lambda: "Remove agent?" in screen_text(app))
        await pilot.press("escape", "x")
        await until(pilot, on(app, MenuScreen))
        await pilot.press("escape")
        await pilot.press("m")
        await until(pilot, lambda: app.main.query_one(LogsPane).has_focus_within)


async def test_help_tells_what_does_not_work_here_and_why(run_app, fake):
    fake._capabilities = Capabilities(frozenset(Capability) - {Capability.PAUSE}, {Capability.PAUSE: "no freezer here"})
    async with run_app(size=(120, 110)) as (app, pilot):
        await pilot.press("question_mark")
        await until(pilot, on(app, TextScreen))
        text = screen_text(app)
        for words in ("Not for agent now", "it is running", "Unsupported by fake here", "no freezer here"):
            assert words in text


async def test_the_palette_has_every_action(run_app):
    async with run_app(config=config(keys={"pulse": "f6"})) as (app, _):
        provider = ConsoleCommands(app.main)
        found = [command async for command in provider._commands()]
        told = {command.action for command in found}
        for binding in list_keys():
            assert binding.action in told or binding.id in ("back", "pause", "quarantine", *DRIFT), binding.id
        assert any(command.title == "Pulse" and "key f6" in command.help for command in found)
        mark = next(command for command in found if command.action == "mark_all")
        await provider._run(mark)
        assert len(app.main.marked) == 6


async def test_the_palette_has_what_works_here_and_on_a_page_nothing_of_the_list_behind_it(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("l")
        await until(pilot, lambda: isinstance(app.focused, LogView))
        logs = app.focused
        found = {one.title: one async for one in ConsoleCommands(app.main)._commands()}
        assert "In the logs (key w)" in found["Wrap"].help
        before = logs.look.wrap
        await ConsoleCommands(app.main)._run(found["Wrap"])
        assert logs.look.wrap is not before
        app.action_audit()
        await until(pilot, on(app, AuditScreen))
        every = [one.title async for one in ConsoleCommands(app.screen)._commands()]
        found = dict.fromkeys(every)
        assert len(found) == len(every), "not once more for each of its keys"
        assert {"Verify", "Pulse", "Quit"} <= found.keys()
        assert not {"Stop agent", "Logs", "Faults only", "Wrap"} & found.keys()


async def test_each_action_is_copied_as_a_command(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("Y")
        await until(pilot, on(app, MenuScreen))
        assert "sandbox-console stop fake/local/aaaaaaaaaaaa" in screen_text(app)
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.clipboard == "sandbox-console stop fake/local/aaaaaaaaaaaa")
        await pilot.press("space", "j", "space", "Y")
        await until(pilot, on(app, MenuScreen))
        await pilot.press("down", "enter")
        both = "sandbox-console stop fake/local/aaaaaaaaaaaa fake/local/bbbbbbbbbbbb"
        await until(pilot, lambda: app.clipboard == both)
        await pilot.press("escape", "x")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("c")
        await until(pilot, lambda: app.clipboard == "sandbox-console stop fake/local/bbbbbbbbbbbb")
