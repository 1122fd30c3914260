"""Writes the table of docs/backends.md from result files: ``python -m tests.conformance.table FILE...``.

Without a file those of tests/conformance/results are taken. A file is what a run with CONFORMANCE_RESULTS=FILE wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sandbox_console.testing.conformance.table import markdown, merged

DOCUMENT = Path(__file__).parents[2] / "docs" / "backends.md"
RESULTS = Path(__file__).with_name("results")
BEGIN, END = "<!-- checks: made by python -m tests.conformance.table -->\n", "<!-- end of the checks -->\n"


def table(files: list[Path]) -> str:
    """The table of these files."""
    return markdown(merged(json.loads(file.read_text()) for file in files))


def stored() -> list[Path]:
    """The files of the last runs, one a backend."""
    return sorted(RESULTS.glob("*.json"))


def written() -> str:
    """The table as it stands in the document."""
    return DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    found = table([Path(word) for word in sys.argv[1:]] or stored())
    DOCUMENT.write_text(head + BEGIN + found + END + rest.partition(END)[2])
