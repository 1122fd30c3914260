"""README.md and docs/ name only what there is: commands that parse, make's targets, files, exit codes, spec fields."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
from tests.tui.safety import hostile_app, test_clicks

from sandbox_console import errors
from sandbox_console.cli import parser
from sandbox_console.model import check
from sandbox_console.model.spec import SandboxSpec

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))}


def _commands() -> list[tuple[str, str]]:
    lines = [
        (page, line.strip())
        for page, text in PAGES.items()
        for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    whole = re.compile(r"(\S*/)?sandbox-console(?= |$)")
    return [(page, line) for page, line in lines if whole.match(line) and "usage:" not in line and "[" not in line]


@pytest.mark.parametrize(("page", "line"), _commands())
def test_commands_parse(page: str, line: str) -> None:
    words = shlex.split(re.split(r" > | \| | && |; echo", line)[0], comments=True)
    parser.parse(words[1:])


def test_there_are_commands() -> None:
    assert len(_commands()) > 10


def test_targets_are_makes() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for text in PAGES.values() for name in re.findall(r"(?:^|`)make ([a-z0-9-]+)", text, re.MULTILINE)}
    assert named
    assert named <= targets


def test_links_lead_somewhere() -> None:
    for page, text in PAGES.items():
        folder = ROOT if page == "README.md" else ROOT / "docs"
        for link in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (folder / link).exists(), (page, link)


def test_exit_codes_are_the_errors_own() -> None:
    table = PAGES["cli.md"].partition("## Exit codes")[2].partition("\n## ")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d) \|", table, re.MULTILINE)}
    assert listed == {0} | {kind.exit_code for kind in vars(errors).values() if hasattr(kind, "exit_code")}


def test_the_counts_of_the_security_model_are_those_of_the_tests() -> None:
    row = next(row for row in PAGES["security.md"].splitlines() if "`tests/tui/safety`" in row)
    assert f"({len(hostile_app.NAMES)} places" in row
    assert f"in {len(test_clicks.PATHS)})" in row


def test_the_spec_shown_is_one() -> None:
    block = re.search(r"```toml\n(name = .*?)```", README, re.DOTALL)
    assert block
    assert check.problems(SandboxSpec.from_dict(tomllib.loads(block[1]))) == {}
