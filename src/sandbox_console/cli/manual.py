"""The man page in roff, built from the same texts as ``--help``: ``sandbox-console man | man -l -``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from sandbox_console.cli import arguments, parser
from sandbox_console.version import __version__


def page() -> str:
    """The whole page: every verb with its arguments, and the common options once."""
    root = parser.build()
    everywhere = argparse.ArgumentParser(add_help=False)
    arguments.add_everywhere(everywhere)
    common = {option for action in everywhere._actions for option in action.option_strings} | {"-h"}  # noqa: SLF001
    lines = [f'.TH SANDBOX-CONSOLE 1 "" "sandbox-console {__version__}"', ".SH NAME"]
    lines += ["sandbox-console \\- see, watch, enter, create and audit sandboxes", ".SH SYNOPSIS"]
    lines += [".B sandbox-console", "[VERB] [WORDS]...", ".SH DESCRIPTION", _text(root.description or "")]
    lines += [".SH EVERYWHERE", *_words(everywhere, set()), ".SH VERBS"]
    for name, verb in _verbs(root, ""):
        lines += [f".SS {_text(name)}", _text(f"{verb.description or ''}."), *_words(verb, common)]
    lines += [".SH SEE ALSO", "docs/cli.md, with exit codes and the objects of \\-\\-json", ""]
    return "\n".join(lines)


def _verbs(of: argparse.ArgumentParser, prefix: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for name, verb in parser.subparsers(of).items():
        if parser.subparsers(verb):
            yield from _verbs(verb, f"{prefix}{name} ")
        else:
            yield prefix + name, verb


def _words(of: argparse.ArgumentParser, common: set[str]) -> Iterator[str]:
    for action in of._actions:  # noqa: SLF001 - argparse has no public way to them
        if not common & set(action.option_strings):
            value = "" if action.nargs == 0 else str(action.metavar or "")
            yield ".TP"
            yield f".B {_text(' '.join(filter(None, [', '.join(action.option_strings), value])))}"
            yield _text(action.help or "")


def _text(text: str) -> str:
    """Escape text for roff, so that no line begins a request and no character is a command."""
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("%%", "%").replace("\n", " ")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain
