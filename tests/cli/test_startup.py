"""The entry point imports nothing heavy before it knows that it must."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sandbox_console.cli import parser

_LOOK = """
import json, runpy, sys
sys.argv = ["sandbox-console", *{words!r}]
try:
    runpy.run_module("sandbox_console", run_name="__main__", alter_sys=False)
except SystemExit as end:
    code = end.code
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""
HEAVY = (
    *("textual", "rich", "pyghostty", "asyncio", "aiohttp", "aiodocker", "docker", "microsandbox"),
    *("aiosqlite", "sqlite3", "msgspec", "platformdirs", "dataclasses", "inspect", "importlib.metadata"),
)


@pytest.mark.parametrize("words", [["--version"], ["--version", "--json"], ["--help"], ["exec", "--help"], ["lss"]])
def test_words_alone_import_nothing_heavy(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", _LOOK.format(words=words)], capture_output=True, check=True)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == (2 if words == ["lss"] else 0)
    assert [name for name in HEAVY if name in modules] == []


def test_handing_a_command_to_its_server_imports_next_to_nothing() -> None:
    look = (
        "import sys; before = set(sys.modules); from sandbox_console.__main__ import main;"
        "from sandbox_console.command_server import client; print(*sorted(set(sys.modules) - before))"
    )
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.split()
    assert not {*HEAVY, "typing", "pathlib", "subprocess", "json", "argparse", "tempfile", "hashlib"} & set(found)


def test_a_verb_imports_no_screen_and_no_sdk(tmp_path) -> None:
    look = _LOOK.format(words=["audit", "ls"])
    env = {"SANDBOX_CONSOLE_HOME": str(tmp_path), "SANDBOX_CONSOLE_SERVER": "off", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True, env=env)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    assert not {"textual", "rich", "pyghostty", "docker", "aiodocker", "microsandbox"} & set(modules)


def test_version_says_it() -> None:
    from sandbox_console import __version__

    def out(*words: str) -> bytes:
        return subprocess.run([sys.executable, "-m", "sandbox_console", *words], capture_output=True, check=True).stdout

    assert out("--version") == f"sandbox-console {__version__}\n".encode()
    assert json.loads(out("--json", "--version")) == {"version": __version__}


def test_a_verb_that_changes_nothing_imports_no_journal_and_no_effect(tmp_path) -> None:
    (tmp_path / "config.toml").write_text(
        "[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"
    )
    env = {"SANDBOX_CONSOLE_HOME": str(tmp_path), "SANDBOX_CONSOLE_SERVER": "off", "PATH": "/usr/bin:/bin"}
    look = _LOOK.format(words=["ls"])
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True, env=env)
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    late = ("audit.journal", "service.incident", "service.effects.dispatch", "service.sandbox_file", "service.alerts")
    assert not {"sqlite3", "tomlkit", *(f"sandbox_console.{name}" for name in late)} & set(modules)


def test_only_the_parser_of_the_verb_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    init = parser.Parser.__init__
    monkeypatch.setattr(
        parser.Parser, "__init__", lambda self, **options: (made.append(options["prog"]), init(self, **options))[1]
    )
    parser.build.cache_clear()
    parser.parse(["egress", "ls"])
    parser.build.cache_clear()
    assert made[:2] == ["sandbox-console", "sandbox-console egress"]
    assert all(prog.startswith("sandbox-console egress") for prog in made[1:])
