"""Filters, the form's texts, what can be done, and how values read."""

from __future__ import annotations

import shlex

import pytest
from msgspec import structs
from tests.tui.app.scene import fleet, sandbox

from sandbox_console.cli.parser import parse as parse_words
from sandbox_console.cli.spec_options import from_args, without
from sandbox_console.model.action import Create, Kill, Remove, Update
from sandbox_console.model.sandbox import Exit, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.state.verbs import VERBS, accepted, must_type, unfit
from sandbox_console.tui.text import formatting as words
from sandbox_console.tui.text.form_values import parse, shown_value, texts_of


def test_the_form_gives_back_what_a_spec_says():
    spec = SandboxSpec(
        "web", image="python:3.12", command=("sh", "-c", "echo 'a b'"), cpus=0.5, memory_mib=1536, egress=("acme.org", "*.x.io:443"),
        secrets=("TOKEN",), workspace="/tmp/w", env={"A": "1 2", "B": ""}, labels={"k": "v=w"}, user="app", max_duration_s=60,
    )  # fmt: skip
    assert parse(texts_of(spec), spec) == (spec, {})
    assert shown_value("env", {"API_KEY": "canary", "A": "1"}) == "'API_KEY=***' A=1"


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("memory_mib", "512 apples", "not a size"),
        ("cpus", "two", "not a number"),
        ("command", "echo 'x", "quotes"),
        ("labels", "team", "no '='"),
        ("env", "A=1 B", "'B' has no '='"),
    ],
)
def test_what_a_field_cannot_mean_is_its_own_problem(field, text, said):
    _, problems = parse({"name": "x", field: text})
    assert problems.keys() == {field}
    assert said in problems[field]


def test_verbs_that_make_no_sense_now_say_why():
    running, ended = fleet()[0], fleet()[2]
    assert unfit(VERBS["start"], running) == "it is running"
    assert unfit(VERBS["stop"], ended) == "it is exited"
    assert unfit(VERBS["stop"], running, "restart") == "restart is in flight"
    assert unfit(VERBS["remove"], ended) == ""
    assert VERBS["remove"].make(running) == Remove(running.ref, force=True)
    assert VERBS["remove"].make(ended) == Remove(ended.ref, force=False)


def test_what_destroys_needs_the_id():
    running, ended = fleet()[0], fleet()[2]
    assert must_type(VERBS["kill"], running)
    assert not must_type(VERBS["stop"], running)
    assert not must_type(VERBS["remove"], ended)
    assert must_type(VERBS["remove"], ended, token="x")
    long = sandbox("0123456789abcdef0123", "x")
    assert accepted(" 0123456789abcdef0123 ", long)
    assert accepted("0123456789ab", long)
    assert not accepted("0123456789a", long)
    assert not accepted("", long)


def test_the_command_line_of_an_action():
    one = fleet()[0]
    assert command_line(Kill(one.ref)) == "sandbox-console kill fake/local/aaaaaaaaaaaa"
    assert command_line(Remove(one.ref, force=True)) == "sandbox-console rm fake/local/aaaaaaaaaaaa --force"
    assert command_line(Kill(one.ref), None, "aaaa") == "sandbox-console kill --confirm aaaa fake/local/aaaaaaaaaaaa"
    assert "secret" not in command_line(Update(one.ref, SandboxSpec("agent", image="x", env={"KEY": "secret"})))
    env = {"LANG": "C.UTF-8", "API_TOKEN": "hush", "URL": "https://me:hush@acme.org"}
    made = command_line(Create(SandboxSpec("agent", image="x", env=env), "fake", "local"))
    assert "--env LANG=C.UTF-8 --env API_TOKEN=… --env URL=…" in made.replace("'", "")


FULL = SandboxSpec(
    "web", image="python:3.12", command=("sh", "-c", "echo 'a b'"), cpus=0.5, memory_mib=1536, pids=9, egress=("acme.org",),
    secrets=("TOKEN", "KEY"), workspace="/tmp/w", labels={"k": "v=w", "-l": ""}, user="app", workdir="/srv", runtime="runc",
    max_duration_s=90.5, idle_timeout_s=3600.0, read_only_root=True, limits="best-effort", env={"LANG": "C.UTF-8", "E": ""},
)  # fmt: skip


def test_the_command_line_of_create_makes_the_same():
    words = shlex.split(command_line(Create(FULL, "docker", "far", start=False)))[1:]
    args = parse_words(words)
    assert (args.verb, args.backend, args.no_start) == ("create", "docker/far", True)
    assert from_args(args, {"name": args.name}) == FULL


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FULL, structs.replace(FULL, name="-new")),
        (FULL, SandboxSpec("web", image="python:3.12")),
        (SandboxSpec("web"), FULL),
        (FULL, structs.replace(FULL, labels={"k": "x", "m": "n"}, egress=(), cpus=2.0, command=("-x", "--", "y"))),
        (FULL, structs.replace(FULL, labels={**FULL.labels, "m": "n"})),
    ],
)
def test_the_command_line_of_update_leads_from_one_spec_to_the_other(before, after):
    words = shlex.split(command_line(Update(fleet()[0].ref, after), before))[1:]
    args = parse_words(words)
    changed = from_args(args, without(before.to_dict(), args.unset))
    assert structs.replace(changed, name=args.rename if args.rename is not None else before.name) == after
    unchanged = {field for field in before.to_dict() if getattr(before, field) == getattr(after, field)} - {"name"}
    assert not unchanged & {field for field in ("image", "user", "runtime") if f"--{field}" in words}


def test_how_values_read():
    assert [words.size(n) for n in (None, 0, 900, 5 << 20, 3 << 29)] == ["–", "0B", "900B", "5M", "1.5G"]
    assert [words.span(n) for n in (-1, 59, 61, 3600, 7300, 90000, 200000)] == [
        "0s",
        "59s",
        "1m01s",
        "1h00m",
        "2h01m",
        "25h",
        "2d",
    ]
    assert words.exit_words(Exit(137, 9, oom=True)) == "out of memory, signal 9"
    assert words.exit_words(Exit(3)) == "exit 3"


def test_a_name_that_is_not_ascii_shows_the_id_beside_it():
    assert words.shown_name(sandbox("0123456789abcdef", "рayments")) == "⚠ рayments (0123456789ab)"
    assert "\u202e" not in words.shown_name(sandbox("1", "a\u202eb"))
    assert words.status_reason(sandbox("1", "x", Status.LOST, detail="gone\x1b[2J")) == "gone␛[2J"
