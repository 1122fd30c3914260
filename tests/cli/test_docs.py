"""docs/cli.md says what the code does: its words from the parser, its keys from what is printed, its exit codes."""

from __future__ import annotations

import json
import re

from tests.cli.golden import FOLDER
from tests.cli.reference import DOCUMENT, reference, written

from sandbox_console import errors

TEXT = DOCUMENT.read_text()


def keys(of: str) -> set[str]:
    row = re.search(rf"^\| {re.escape(of)} \| (.*) \|$", TEXT, re.MULTILINE)
    assert row, of
    return set(re.findall(r"`([a-z_0-9]+)`", row[1]))


def printed(file: str, command: str) -> list[dict[str, object]]:
    """What successful runs of a command printed in a golden file."""
    found: list[dict[str, object]] = []
    for run in (FOLDER / f"{file}.txt").read_text().split("$ ")[1:]:
        line, *output = run.splitlines()
        if line.startswith(command) and "--json" in line:
            found += [json.loads(re.sub(r": <\w+>", ": 0", text)) for text in output if text.startswith("{")]
    assert found, (file, command)
    return found


def test_the_reference_is_the_parsers_own() -> None:
    assert written() == reference(), "python -m tests.cli.reference"


def test_the_keys_are_those_printed() -> None:
    ls = keys("ls, create")
    for file, command, of, extra in (
        ("ls", "ls", ls - {"audit_id"}, set()),
        ("create", "create new2", ls, set()),
        ("create", "create other", keys("create --dry-run"), set()),
        ("show", "show", (ls - {"audit_id"}) | (keys("show") - {"ls"}), set()),
        ("update", "update", keys("update"), {"problems", "losses", "committed"}),
        ("lifecycle", "stop", keys("start, stop, kill, restart, pause, resume, rm"), set()),
        ("stats", "stats", keys("stats"), set()),
        ("audit", "audit ls", keys("audit ls"), set()),
        ("audit", "audit show", keys("audit show"), set()),
        ("audit", "audit verify", keys("audit verify"), set()),
        ("egress-seeing", "egress ls", keys("egress ls"), set()),
        ("egress-seeing", "egress feed", keys("egress feed"), set()),
        ("egress-changing", "egress allow", keys("egress allow, deny, remove"), set()),
        ("egress-explaining", "egress test", keys("egress test"), set()),
        ("egress-replay", "egress replay", keys("egress replay"), set()),
        ("secrets", "secrets ls", keys("secrets ls"), set()),
        ("secrets", "secrets check", keys("secrets ls") | {"ok", "problem", "note"}, set()),
        (
            "exec",
            "exec",
            keys("exec"),
            {"stream", "data", "data_b64", "exit_code", "timed_out", "audit_id", "without_secrets"},
        ),
        ("looks", "top", keys("top"), set()),
        ("looks", "diff", keys("diff"), set()),
        ("looks", "inspect", keys("inspect"), set()),
        ("looks", "events", keys("events"), set()),
        ("looks", "port", keys("port"), set()),
        ("derived", "commit", keys("rename, commit, fork"), set()),
        ("derived", "fork", keys("rename, commit, fork"), {"image_id"}),
        ("derived", "snapshot ls", keys("snapshot ls"), set()),
        ("derived", "snapshot create", keys("snapshot create, restore"), set()),
        ("derived", "snapshot restore", keys("snapshot create, restore"), {"snapshot"}),
        ("derived", "snapshot rm", keys("snapshot rm"), set()),
        ("images", "images ls", keys("images ls"), set()),
        ("images", "images pull", keys("images pull, rm, load, save"), {"bytes"}),
        ("images", "images prune", keys("images prune"), set()),
        ("logs", "logs", keys("logs"), {"stream", "data", "data_b64", "gap", "lines", "partial"}),
    ):
        for found in printed(file, command):
            assert set(found) - extra == of - extra, (command, found)


def test_every_exit_code_is_listed() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+)", TEXT, re.MULTILINE)}
    tree = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "exit_code")}
    assert tree | {0, 124, 125} <= listed
