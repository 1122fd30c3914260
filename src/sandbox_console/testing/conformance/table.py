"""A table of what each backend passes, what it cannot do (with its reason), and its known gaps.

``python -m sandbox_console.testing.conformance.table FILE...`` prints it for files written by runs with
``CONFORMANCE_RESULTS=FILE``. Without a file it uses the last runs of the built-in backends, from the package.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

Results = dict[str, dict[str, dict[str, list[str]]]]
"""The result and reason by label, topic and check."""

RESULTS = Path(__file__).with_name("results")
"""The last runs of the built-in backends, one file each."""

_WORST = ("FAIL", "known gap", "unsupported", "pass")


def merged(files: Iterable[Results]) -> Results:
    """Merge several runs. A backend in a later run replaces it in an earlier one."""
    found: Results = {}
    for one in files:
        found |= one
    return found


def markdown(results: Results) -> str:
    """A table for each topic, a row for each check (its parameters together), and the reasons as notes."""
    labels, notes = sorted(results), dict[str, int]()
    parts: list[str] = []
    for topic in sorted({topic for found in results.values() for topic in found}):
        parts += [f"### {topic.replace('_', ' ').capitalize()}\n", "| check | " + " | ".join(labels) + " |",
                  "|---|" + "---|" * len(labels)]  # fmt: skip
        for check in sorted({_name(check) for found in results.values() for check in found.get(topic, {})}):
            cells = [_cell(results[label].get(topic, {}), check, notes) for label in labels]
            parts.append(f"| {check} | " + " | ".join(cells) + " |")
        parts.append("")
    parts += [f"{number}. {note}" for note, number in notes.items()]
    return "\n".join(parts) + "\n"


def _name(check: str) -> str:
    return re.sub(r"\[.*", "", check, flags=re.DOTALL).removeprefix("test_").replace("_", " ")


def _cell(found: dict[str, list[str]], name: str, notes: dict[str, int]) -> str:
    ended = [end for check, end in found.items() if _name(check) == name]
    if not ended:
        return "-"
    word = next(word for word in _WORST if any(end[0] == word for end in ended))
    reasons = sorted({end[1] for end in ended if end[0] == word and end[1]})
    return word if not reasons else f"{word} " + "".join(_notes(reasons, notes))


def _notes(reasons: list[str], notes: dict[str, int]) -> Iterator[str]:
    for reason in reasons:
        yield f"<sup>{notes.setdefault(' '.join(reason.split()), len(notes) + 1)}</sup>"


if __name__ == "__main__":
    wanted = [Path(word) for word in sys.argv[1:]] or sorted(RESULTS.glob("*.json"))
    sys.stdout.write(markdown(merged(json.loads(file.read_text()) for file in wanted)))
