"""docs/keys.md is held to the code: its table of keys is written from the bindings, and what it names is there.

``UPDATE_GOLDEN=1`` writes the table anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sandbox_console.service import TuiOptions
from sandbox_console.tui.base.themes import THEMES
from sandbox_console.tui.bulk.bulk_run import AT_ONCE, ItemOutcome
from sandbox_console.tui.keys import keymap, page_keys
from sandbox_console.tui.keys.key_names import short_key
from sandbox_console.tui.logs.merged_logs import MOST

PAGE = Path(__file__).parents[2] / "docs" / "keys.md"
BEGIN, END = "<!-- keys: written by tests/docs/test_keys.py -->\n", "<!-- /keys -->\n"


def _shown(key: str) -> str:
    word = short_key(key)
    return f"`{word.replace('^', 'Ctrl+') if len(word) > 1 else word.replace('|', chr(92) + '|')}`"


def table() -> str:
    """The table as Markdown."""
    usual, lazy = (keymap.load(TuiOptions(keymap=name)) for name in ("default", "lazydocker"))
    lines = ["| action | key | lazydocker | what it does |", "|---|---|---|---|"]
    for action, what in keymap.actions().items():
        keys, other = (" ".join(dict.fromkeys(map(_shown, found.keys[action]))) for found in (usual, lazy))
        lines.append(f"| `{action}` | {keys} | {'' if other == keys else other or 'none'} | {what} |")
    lines += ["", "Inside logs, tabs and pages:", "", "| action | key | what it does |", "|---|---|---|"]
    for scope in page_keys.PAGE_KEYS:
        for one in page_keys.named(scope):
            keys = " ".join(dict.fromkeys(map(_shown, one.key.split(","))))
            lines.append(f"| `{one.id}` | {keys} | {one.description} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_keys_is_the_one_in_the_code() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    found, _, after = rest.partition(END)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(before + BEGIN + table() + END + after)
        return
    assert found == table(), "UPDATE_GOLDEN=1 writes it anew"


def test_themes_results_and_figures_are_the_ones_in_the_code() -> None:
    text = PAGE.read_text()
    for theme in THEMES:
        assert f"`{theme.name}`" in text
    assert set(re.findall(r"^\| `(\w+)` \| [A-Z]", text, re.MULTILINE)) >= set(map(str, ItemOutcome)) - {
        "waiting",
        "running",
    }
    assert f"{AT_ONCE} at a time" in text
    assert f"up to {MOST}" in text


def test_the_example_of_the_config_is_valid() -> None:
    import tomllib

    [example] = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    options = tomllib.loads(example)["tui"]
    keymap.load(TuiOptions(keymap=options["keymap"], keys=options["keys"]))
