"""Completion as a shell asks for it (in the environment, answered on file descriptor 8), and the manual page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_console.cli import completion, parser


def offered(line: str, home: Path) -> list[str]:
    env = os.environ | {"SANDBOX_CONSOLE_HOME": str(home), "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "fish",
                        "_ARGCOMPLETE_SUPPRESS_SPACE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line))}  # fmt: skip
    command = ["sh", "-c", 'exec "$@" 8>&1 9>/dev/null 1>/dev/null', "sh", sys.executable, "-m", "sandbox_console"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [word.split("\t")[0].strip() for word in done.stdout.split("\n") if word.strip()]


def test_verbs_and_options(tmp_path: Path) -> None:
    assert set(offered("sandbox-console re", tmp_path)) == {"restart", "resume", "rename", "recordings"}
    assert "--timeout" in offered("sandbox-console exec --t", tmp_path)
    assert offered("sandbox-console completion f", tmp_path) == ["fish"]


def test_names_and_labels_that_a_shell_would_act_on_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "web\nwork\n$(touch x)\na b\n`id`\nother;ls\n"

    def ran(*_: object, **how: object) -> subprocess.CompletedProcess[str]:
        assert not [name for name in how["env"] if name.startswith("_ARGCOMPLETE")]  # type: ignore[attr-defined]
        return subprocess.CompletedProcess([], 0, lines, "")

    monkeypatch.setattr(subprocess, "run", ran)
    assert completion._names("w") == ["web", "work"]
    assert completion._names("") == ["web", "work"]
    lines = "team=x,n=1\nteam=x\nbad=$(id)\n"
    assert completion._labels("") == ["n=1", "team=x"]


def test_a_tab_in_a_folder_that_a_guest_fills_runs_nothing_of_it(cli, box: str, tmp_path: Path, monkeypatch) -> None:
    """Python would look for its modules there first."""
    for name in ("sandbox_console/__init__.py", "msgspec.py", "argcomplete.py", "sitecustomize.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(cli.home))
    assert completion._names("b") == [box]
    assert not (tmp_path / "ran").exists()


def test_a_late_list_leaves_the_names_that_were_seen_last(cli, box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.ok("ls")

    def late(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("ls", completion.LIST_S)

    monkeypatch.setattr(subprocess, "run", late)
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(cli.home))
    assert completion._names("b") == [box]
    assert completion._names("x") == []
    assert completion._labels("") == []
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(cli.home / "nothing"))
    assert completion._names("") == []


def test_names_of_what_is_there(cli, box: str) -> None:
    assert box in offered("sandbox-console stop b", cli.home)
    assert box not in offered("sandbox-console create b", cli.home)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shells_take_what_is_printed(shell: str, cli) -> None:
    code = cli.ok("completion", shell)
    assert b"sandbox-console" in code
    if found := shutil.which(shell):
        subprocess.run([found, "-n"], input=code, check=True)


def test_the_manual_has_every_verb_and_no_request_but_its_own(cli) -> None:
    page = cli.ok("man").decode()
    for verb in parser.subparsers(parser.build()):
        assert f"\n.SS {verb}".replace("-", "\\-") in page, verb
    assert {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))} == {
        ".TH", ".SH", ".SS", ".TP", ".B"
    }  # fmt: skip
    if found := shutil.which("man"):
        done = subprocess.run([found, "--warnings", "-l", "-"], input=page, text=True, capture_output=True, check=True)
        assert done.stderr == ""
