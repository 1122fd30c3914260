"""What has several lines keeps them: commands in the spec, the form, the plan and the menu of commands."""

from __future__ import annotations

import re
import shlex

from msgspec import structs
from tests.tui.app.scene import NOW, ref, sandbox, screen_text, until
from textual.events import Paste
from textual.widgets import Input

from sandbox_console.model.audit import AuditEntry, AuditRow
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import Fact
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service.effects.change_plan import Change, How, Plan, make_plan
from sandbox_console.tui.detail.audit_tab import entry_words
from sandbox_console.tui.detail.spec_tab import spec_words
from sandbox_console.tui.dialogs.action_menu import Choice, choice_line
from sandbox_console.tui.form.change_plan import plan_words
from sandbox_console.tui.text.form_values import BREAK, parse, texts_of

SCRIPT = "while :; do\n  date\ndone"
SPEC = SandboxSpec("loop", image="host", command=("sh", "-c", SCRIPT), env={"PEM": "a\nb", "SIGN": BREAK})


def test_a_name_as_long_as_its_column_does_not_run_into_what_follows():
    spec = SandboxSpec("one", image="host", read_only_root=True, max_duration_s=3600)
    detail = spec_words(sandbox("1", "one", spec=spec), None, 80).plain
    assert re.search(r"^max_duration_s +1h", detail, re.MULTILINE)
    assert re.search(r"^read_only_root +yes", detail, re.MULTILINE)
    change = Change("max_duration_s", 60, 3600, How.LIVE)
    assert re.search(r"max_duration_s +1m → 1h", plan_words(Plan((change,)), 80).plain)
    change = Change("capabilities", "none", "CHOWN", How.LIVE)
    assert re.search(r"capabilities +none → CHOWN", plan_words(Plan((change,)), 80).plain)


def test_the_spec_shows_the_lines_of_a_command_and_none_under_what_holds():
    facts = (Fact("command", f"sh -c {SCRIPT}"), Fact("image", "host"), Fact("env A_VERY_LONG_NAME_OF_ONE", "1"))
    detail = spec_words(sandbox("1", "loop", spec=SPEC, effective=facts), None, 80).plain.splitlines()
    at = detail.index("command       sh -c 'while :; do")
    assert detail[at + 1 : at + 3] == ["                date", "              done'"]
    assert detail[at + 3].startswith("env "), "a command that holds as it was asked is not told twice"
    assert "env A_VERY_LONG_NAME_OF_ONE               1" in detail, "a name has the room that nothing else takes"
    other = structs.replace(SPEC, command=("sh", "-c", "x" * 90))
    detail = spec_words(sandbox("1", "loop", spec=other, effective=(Fact("command", "tini\nsh"),)), None, 80).plain
    lines = detail.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("command"))
    assert [line.rstrip() for line in lines[at : at + 5]] == [
        "command       sh -c", f"{' ' * 14}{'x' * 66}", f"{' ' * 14}{'x' * 24}", f"{' ' * 42}tini", f"{' ' * 42}sh",
    ]  # fmt: skip


def test_the_form_has_a_sign_for_a_break_and_gives_back_what_was_not_changed():
    texts = texts_of(SPEC)
    assert "\n" not in "".join(texts.values())
    assert parse(texts, SPEC) == (SPEC, {}), "a sign that was there before stays what it is"
    changed, problems = parse(texts | {"command": texts["command"].replace("date", "uptime")}, SPEC)
    assert (changed.command[2], problems) == (SCRIPT.replace("date", "uptime"), {})


def test_the_plan_shows_a_script_before_and_after():
    new = structs.replace(SPEC, command=("sh", "-c", "echo 1\necho 2"), image="host2")
    detail = plan_words(make_plan(SPEC, new, Capabilities(frozenset(Capability)), {}), 80).plain.splitlines()
    assert " ".join(detail[0].split()) == "↻ recreate image host → host2 it is set when a sandbox is made"
    assert detail[1].startswith("↻ recreate     command")
    assert detail[2:7] == ["    sh -c 'while :; do", "      date", "    done'", "  → sh -c 'echo 1", "    echo 2'"]
    wide = structs.replace(SPEC, command=("z" * 99,))
    detail = plan_words(make_plan(SPEC, wide, Capabilities(frozenset(Capability)), {}), 60).plain.splitlines()
    assert detail[-3:-1] == [f"  → {'z' * 56}", f"    {'z' * 43}"], "each row after the first is set in"


def test_a_command_that_is_too_long_for_the_menu_hangs_under_its_first_word():
    words = f"sandbox-console create web {shlex.quote(SCRIPT)} {'y' * 40}"
    lines = choice_line(Choice(words, "Create", "", detail=words), 50).plain.splitlines()
    assert lines[0].startswith("    Create        sandbox-console")
    assert len(lines) > 3
    assert all(line.startswith(" " * 18) and len(line) <= 50 for line in lines[1:])
    assert choice_line(Choice("", "Create", "", detail="word " * 999), 50).plain.endswith("…"), "more is not shown"


def test_an_audit_row_is_set_in_and_its_time_can_be_read():
    fields = dict.fromkeys(AuditRow.__struct_fields__) | {"at_ns": int(NOW * 1e9), "body": {"path": "/" + "long/" * 30}}
    detail = entry_words(AuditEntry(AuditRow(**fields)), 60).plain.splitlines()
    moment = rf"at_ns       {int(NOW * 1e9)}  11-1\d \d\d:\d\d:20"
    assert any(re.fullmatch(moment, line) for line in detail)
    at = next(number for number, line in enumerate(detail) if line.startswith("body"))
    assert len(detail) > at + 2
    assert all(line.startswith(" " * 12) and len(line) <= 60 for line in detail[at + 1 :])


async def test_a_script_that_is_pasted_keeps_its_lines(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("n")
        await until(pilot, lambda: app.screen.query("#field-command"))
        line = app.screen.query_one("#field-command", Input)
        line.focus()
        await until(pilot, lambda: line.has_focus)
        app.post_message(Paste(f"sh -c '{SCRIPT}'\n"))
        await until(pilot, lambda: line.value == f"sh -c '{SCRIPT}'".replace("\n", BREAK))
        await pilot.press("escape")
        await until(pilot, lambda: "Leave the form?" in screen_text(app))
        await pilot.press("y", "Y")
        await until(pilot, lambda: "sandbox-console create agent --backend fake/local" in screen_text(app))
        assert app.main.selected.ref == ref("aaaaaaaaaaaa")


async def test_a_foot_that_is_too_narrow_leaves_keys_out_but_never_the_help(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press("h")
        await until(pilot, lambda: "esc" not in foot(app) and "? Help" in foot(app))
        assert foot(app).split("? Help")[0].rstrip().endswith("o Older")
        assert foot(app).rstrip().endswith("^p palette")
        await pilot.resize_terminal(120, 30)
        await until(pilot, lambda: "esc Back ? Help" in foot(app))


async def test_the_help_of_a_line_is_short_and_its_rows_are_set_in(run_app):
    async with run_app(size=(80, 40)) as (app, pilot):
        await pilot.press("h", "slash", "f1")
        await until(pilot, lambda: "In the line" in screen_text(app))
        detail = screen_text(app).split("In the line")[1].split("In the audit log")[0]
        assert "Ctrl+w      Delete previous word" in detail
        assert "…" not in detail
        assert "super" not in detail
        await pilot.press("G")
        await until(pilot, lambda: "Terminal  every key" in screen_text(app))
        after = screen_text(app).split("Terminal  ")[1].splitlines()[1]
        assert after.split("│")[1].startswith(" " * 11)


def foot(app):
    return screen_text(app).splitlines()[-1]


def test_on_a_phone_what_is_in_effect_is_below_what_was_asked_for():
    facts = (Fact("cpus", "0.5", "no cgroup is writable", enforced=False), Fact("network", "none"))
    lines = spec_words(sandbox("1", "one", effective=facts), None, 43).plain.splitlines()
    assert max(map(len, lines)) <= 43
    [at] = [at for at, line in enumerate(lines) if line.startswith("cpus")]
    assert [line.rstrip() for line in lines[at : at + 3]] == [
        "cpus          0.5",
        "              → 0.5  ⚠ not enforced  no",
        "                cgroup is writable",
    ]
    assert "network       → none" in lines
