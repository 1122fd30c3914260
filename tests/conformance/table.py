"""Writes the table of docs/backends.md from result files: ``python -m tests.conformance.table FILE...``.

Without a file those that the package has are taken, which ``make conformance`` stores. A file is what a run with
CONFORMANCE_RESULTS=FILE wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from sandbox_console.testing.conformance.table import RESULTS, markdown, merged

DOCUMENT = Path(__file__).parents[2] / "docs" / "backends.md"
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


def write(files: list[Path] | None = None) -> None:
    """Put the table of these files, else of the stored ones, into the document."""
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(head + BEGIN + table(files or stored()) + END + rest.partition(END)[2])


if __name__ == "__main__":
    write([Path(word) for word in sys.argv[1:]])
