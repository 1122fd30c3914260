"""Writes the table of fields in docs/spec.md from their declarations; ``--check`` only says whether it is current."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

from sandbox_console.model.spec_fields import FIELDS, Kind, SpecField

DOCUMENT = Path(__file__).parents[1] / "docs" / "spec.md"
BEGIN, END = "<!-- fields: made by python scripts/spec_reference.py -->\n", "<!-- end of the fields -->\n"


def reference() -> str:
    """A heading and a table for each section."""
    parts = []
    for section, fields in itertools.groupby(FIELDS, key=lambda field: field.section):
        rows = "".join(f"| {' | '.join(_cells(field))} |\n" for field in fields)
        parts.append(f"### {section}\n\n| field | value | option | meaning | example |\n|---|---|---|---|---|\n{rows}")
    return "\n" + "\n".join(parts) + "\n"


def _cells(field: SpecField) -> list[str]:
    value = " or ".join(f"`{choice}`" for choice in field.choices) or field.kind.value
    unit = {Kind.SIZE: ", in MiB or as `512M`", Kind.DURATION: ", in seconds or as `15m`"}.get(field.kind, "")
    option = f"`{'-' + field.letter + ', ' if field.letter else ''}--{field.option}`" if field.option else ""
    return [f"`{field.name}`", value + unit, option, field.help.replace("|", "\\|"), _example(field)]


def _example(field: SpecField) -> str:
    if field.example is None:
        return ""
    if isinstance(field.example, dict):
        inside = ", ".join(f"{key} = {json.dumps(value)}" for key, value in field.example.items())
        return f"`{{ {inside} }}`"
    return f"`{json.dumps(field.example)}`"


def main() -> int:
    """Write it, or with ``--check`` compare; 1 where it is not current."""
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    text = head + BEGIN + reference() + END + rest.partition(END)[2]
    if "--check" in sys.argv[1:]:
        return int(text != DOCUMENT.read_text())
    DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
