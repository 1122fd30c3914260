"""The reference part of docs/cli.md, out of the parser itself: ``python -m tests.cli.reference`` writes it anew."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from sandbox_console.cli import arguments, parser

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN, END = "<!-- reference: made by python -m tests.cli.reference -->\n", "<!-- end of the reference -->\n"


def reference() -> str:
    """Every verb with its arguments and options, the common ones once."""
    everywhere = argparse.ArgumentParser(add_help=False)
    arguments.add_everywhere(everywhere)
    common = {option for action in everywhere._actions for option in action.option_strings} | {"-h"}
    parts = ["### Everywhere\n\n", *_table(everywhere, set())]
    for name, verb in _verbs(parser.build(), ""):
        parts += [f"\n### {name}\n\n{_sentence(verb.description or '')}\n", *_table(verb, common)]
    return "".join(parts)


def _verbs(of: argparse.ArgumentParser, prefix: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for name, verb in parser.subparsers(of).items():
        if parser.subparsers(verb):
            yield from _verbs(verb, f"{prefix}{name} ")
        else:
            yield prefix + name, verb


def _table(of: argparse.ArgumentParser, common: set[str]) -> Iterator[str]:
    actions = [action for action in of._actions if not common & set(action.option_strings)]
    if actions:
        yield ("" if not common else "\n") + "| word | meaning |\n|---|---|\n"
    for action in actions:
        names = ", ".join(action.option_strings)
        value = "" if action.nargs == 0 else str(action.metavar)
        more = "..." if action.nargs in ("+", "*") or isinstance(action, argparse._AppendAction) else ""
        yield f"| `{' '.join(filter(None, [names, value]))}`{more} | {action.help} |\n"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def written() -> str:
    """The part as it stands in the document."""
    return DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    DOCUMENT.write_text(head + BEGIN + reference() + END + rest.partition(END)[2])
