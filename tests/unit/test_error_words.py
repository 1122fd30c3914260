"""The app puts an error and its next step together in one way."""

from __future__ import annotations

import re
from pathlib import Path

import sandbox_console

TUI = Path(sandbox_console.__file__).parent / "tui"


def test_an_error_and_its_hint_are_joined_by_error_words_alone() -> None:
    joined = re.compile(r"f\"[^\"]*\{error\.message\}[^\"]*\{error\.hint\}")
    found = {str(path.relative_to(TUI)) for path in TUI.rglob("*.py") if joined.search(path.read_text())}
    assert found == {"text/formatting.py"}
