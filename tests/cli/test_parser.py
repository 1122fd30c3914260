"""Words in, or an error that names the nearest word."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_console.__main__ import main
from sandbox_console.cli import parser
from sandbox_console.errors import UsageError


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["lss"], "unknown verb 'lss'", "did you mean ls?"),
        (["craete", "x"], "unknown verb 'craete'", "did you mean create?"),
        (["audit", "verfy"], "unknown verb 'verfy'", "did you mean verify?"),
        (["--jsn", "ls"], "unknown option --jsn", "did you mean --json?"),
        (["create", "x", "--memry=5G"], "unknown option --memry", "did you mean --memory?"),
        (["exec", "x", "--tiemout", "--", "true"], "unknown option --tiemout", "did you mean --timeout?"),
        (
            ["create", "--name", "x", "--image", "i"],
            "unknown option --name",
            "the name needs no option: sandbox-console create NAME",
        ),
        (["rm", "--name", "x"], "unknown option --name", "the name needs no option: sandbox-console rm NAME"),
        (["update", "x", "--name", "y", "--imge=z"], "unknown option --imge", "did you mean --image?"),
        (["ls", "--limits"], "unknown option --limits", "sandbox-console ls --help"),
        (["show", "a", "b"], "unexpected argument 'b'", "sandbox-console show --help"),
        (["show"], "the following arguments are required: NAME", "sandbox-console show --help"),
        (["audit"], "the following arguments are required: VERB", "sandbox-console audit --help"),
        (["remove", "x"], "unknown verb 'remove'", "did you mean rm?"),
        (["help"], "unknown verb 'help'", "did you mean --help?"),
        (["audit", "delete"], "unknown verb 'delete'", "sandbox-console audit --help"),
        (
            ["exec", "--timeout", "5s", "x", "ls", "-l"],
            "unexpected argument 'ls': a command goes after --",
            "sandbox-console exec --timeout 5s x -- ls -l",
        ),
        (
            ["create", "x", "--limits", "bestefort"],
            "--limits: 'bestefort' is not one of strict, best-effort",
            "did you mean best-effort?",
        ),
        (["ls", "--", "x"], "ls takes no command after --", "sandbox-console --help"),
        (["ls", "--js"], "unknown option --js", "did you mean --json?"),
    ],
)
def test_a_word_that_is_off_names_the_nearest(words: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as told:
        parser.parse(words)
    assert (told.value.message, told.value.hint) == (message, hint)


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "--backend", "b", "--config", "f", "--read-only", "--yes", "--confirm", "i", "rm", "x"],
        ["rm", "x", "--json", "--backend", "b", "--config", "f", "--read-only", "--yes", "--confirm", "i"],
        ["--json", "--read-only", "--yes", "rm", "--backend", "b", "x", "--config", "f", "--confirm", "i"],
    ],
)
def test_common_options_stand_before_the_verb_or_after_it(words: list[str]) -> None:
    args = parser.parse(words)
    found = (args.json, args.backend, args.config, args.read_only, args.yes, args.confirm, args.names)
    assert found == (True, "b", "f", True, True, ["i"], ["x"])


def test_what_follows_two_dashes_is_the_guests_word_for_word() -> None:
    args = parser.parse(["exec", "x", "--", "sh", "--json", "--", "-c"])
    assert (args.json, args.command) == (False, ["sh", "--json", "--", "-c"])


@pytest.mark.parametrize(("verb", "told"), [("exec", "NAME -- CMD ARG..."), ("create", "[NAME] [-- CMD ARG...]")])
def test_help_says_where_the_command_stands(verb: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse([verb, "--help"])
    assert f"{told}\n" in capsys.readouterr().out


def test_a_second_parse_knows_nothing_of_the_first() -> None:
    parser.parse(["rm", "x", "--confirm", "a"])
    assert parser.parse(["rm", "x"]).confirm == []


@pytest.mark.parametrize(("words", "code"), [(["lss"], 2), (["exec", "x", "--nope"], 125), (["shell"], 125)])
def test_a_usage_error_is_exit_2_and_for_the_guests_verbs_125(
    words: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "\nhint: " in captured.err


def test_a_usage_error_is_an_object_with_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lss", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    expected = '{"code": "usage", "message": "unknown verb \'lss\'", "hint": "did you mean ls?", "audit_id": null}\n'
    assert captured.err == expected


@pytest.mark.parametrize("word", ["--help", "--version"])
def test_what_cannot_be_printed_is_told(word: str) -> None:
    command = [sys.executable, "-m", "sandbox_console", word]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: the output cannot be written: No space left on device\n")


def test_a_hostile_word_is_cleaned_in_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    main(["show", "a", "\x1b]0;x\x07"])
    assert "\x1b" not in capsys.readouterr().err


def test_without_a_terminal_the_tui_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "needs a terminal" in capsys.readouterr().err


def test_serve_checks_its_port(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--port", "apple"]) == 2
    assert "--port: 'apple' is not a number" in capsys.readouterr().err
