"""Completion as a shell asks for it (in the environment, answered on file descriptor 8), and the manual page."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.require import requires

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
    """Each verb offers names of its own kind: sandboxes, secrets, tokens, users, or none for a name that is new."""
    cli.ok("secrets", "add", "B_KEY", "--from", "env:HOME")
    cli.ok("tokens", "add", "builder", "--scope", "api")
    cli.ok("users", "add", "bea", "--role", "viewer", "--no-password")
    for words, names in {
        "stop b": [box], "bundle b": [box], "templates save x b": [box], "cp bo": [f"{box}:"],
        "secrets rm ": ["B_KEY"], "tokens rm b": ["builder"], "users rm b": ["bea"],
        "create b": [], "secrets add b": [], "snapshot restore s b": [], "users add b": [],
    }.items():  # fmt: skip
        assert [one for one in offered(f"sandbox-console {words}", cli.home) if not one.startswith("-")] == names, words


def test_a_check_of_secrets_offers_their_names_and_with_leaks_files(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[secrets.TOKEN_A]\nfrom = "env:A"\n[secrets.OTHER]\nfrom = "env:B"\n')
    assert offered("sandbox-console secrets check T", tmp_path) == ["TOKEN_A"]
    assert offered(f"sandbox-console secrets check --leaks {tmp_path}/con", tmp_path) == [f"{tmp_path}/config.toml"]


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


RC = {
    "bash": (["setsid", "--ctty", "bash", "--norc", "--noprofile", "-i"], "source {code}"),
    "zsh": (
        ["setsid", "--ctty", "zsh", "-f", "-i"],
        "autoload -Uz compinit; compinit -u -d {home}/dump; source {code}",
    ),
    "fish": (["setsid", "--ctty", "fish", "--no-config", "-i"], "source {code}"),
}


@requires("shell-tools")
@pytest.mark.parametrize("shell", sorted(RC))
def test_a_shell_completes_a_verb_and_a_name_at_tab(shell: str, cli, box: str, tmp_path: Path) -> None:
    words, rc = RC[shell]
    code, told = tmp_path / "code", tmp_path / "told"
    code.write_bytes(cli.ok("completion", shell))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = os.environ | {"SANDBOX_CONSOLE_HOME": str(cli.home), "PATH": path, "HOME": str(tmp_path), "TERM": "xterm"}
    main, inner = pty.openpty()
    process = subprocess.Popen(words, stdin=inner, stdout=inner, stderr=inner, env=env)
    try:
        typed = f"{rc.format(code=code, home=tmp_path)}\nsandbox-console insp\t {box[:1]}\t> {told}.new; mv {told}.new {told}\n"
        os.write(main, typed.encode())
        seen, until = b"", time.monotonic() + 60
        while not told.exists() and time.monotonic() < until:
            if select.select([main], [], [], 0.1)[0]:
                seen += os.read(main, 65536)
        assert told.exists(), seen[-2000:]
        assert box in told.read_text(), seen[-2000:]
    finally:
        process.kill()
        process.wait()
        os.close(main)
        os.close(inner)
