"""The parser of the command line. It uses only the standard library, because ``--help`` must cost no import."""

from __future__ import annotations

import argparse
import functools
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from sandbox_console.cli import arguments
from sandbox_console.cli.lazy_parsers import LateParsers
from sandbox_console.errors import UsageError
from sandbox_console.model.did_you_mean import nearest

GUEST_CODE_VERBS = ("exec", "shell", "attach")
"""Verbs that return the guest's own exit code, and 125 for every failure of the console's own."""

_COMMAND_VERBS = ("create", "update", "exec", "templates", "import")

_ELSEWHERE = {
    "help": "--help", "version": "--version", "ps": "ls", "run": "create", "new": "create", "remove": "rm",
    "delete": "rm", "destroy": "rm", "enter": "shell", "ssh": "shell", "edit": "update", "unpause": "resume",
    "describe": "show",
}  # fmt: skip
"""Names of verbs in other tools. By its letters alone, ``remove`` would be nearest to ``resume``."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises UsageError and suggests the nearest known word."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs | {"allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of printing it, because ``--json`` decides how it is shown."""
        raise UsageError(message, hint=f"{self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known, word = [str(choice) for choice in action.choices], str(value)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no public name
            meant = _ELSEWHERE.get(word, "")
            hint = f"did you mean {meant}?" if meant in (*known, *_options(self)) else _nearest(word, known, self.prog)
            raise UsageError(f"unknown verb {value!r}", hint=hint)
        message = f"{'/'.join(action.option_strings)}: {value!r} is not one of {', '.join(known)}"
        raise UsageError(message, hint=_nearest(word, known, self.prog))

    def format_help(self) -> str:
        """The help. A verb that takes a command after ``--`` says so in its first lines."""
        usage, text, verb = self.format_usage(), super().format_help(), self.prog.split()[-1]
        if verb not in _COMMAND_VERBS:
            return text
        command = "-- CMD ARG..." if verb == "exec" else "[-- CMD ARG...]"
        return text.replace(usage, f"{usage.rstrip()} {command}\n", 1)


@functools.cache
def build() -> Parser:
    """The parser with every verb. The arguments of a verb are added when it is looked up."""
    about = "See, watch, enter, create and audit sandboxes. Without a VERB it opens the screen."
    parser = Parser(prog="sandbox-console", description=about, parents=[arguments.everywhere()], add_help=False)
    parser.add_argument("--version", action="store_true", help="print the version")
    arguments.add_verbs(parser.add_subparsers(dest="verb", metavar="VERB", parser_class=Parser, action=LateParsers))
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the words. What follows the first ``--`` is ``command``. Raises UsageError; ``--help`` prints and exits."""
    own, command = split_command(argv)
    parser = build()
    found, extras = parser.parse_known_args(own)
    if extras:
        raise _unrecognised(parser, found, extras, own)
    found.command = command
    if command is not None and found.verb not in _COMMAND_VERBS:
        raise UsageError(f"{found.verb or 'the TUI'} takes no command after --", hint="sandbox-console --help")
    for name, value in arguments.EVERYWHERE_DEFAULTS.items():
        if not hasattr(found, name):
            setattr(found, name, value)
    return found


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """The console's own words, and the guest's command after ``--`` (None if there is no ``--``)."""
    own = list(argv)
    if "--" not in own:
        return own, None
    at = own.index("--")
    return own[:at], own[at + 1 :]


def verb_of(argv: Sequence[str]) -> str:
    """The verb that the words seem to name, for errors found before they could be parsed."""
    known = subparsers(build())
    return next((word for word in split_command(argv)[0] if word in known), "")


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's verbs, by name."""
    for action in parser._actions:  # noqa: SLF001 - argparse offers no public way to its subparsers
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def _unrecognised(
    parser: argparse.ArgumentParser, found: argparse.Namespace, extras: list[str], own: list[str]
) -> UsageError:
    chosen = subparsers(parser).get(found.verb or "", parser)
    chosen = subparsers(chosen).get(getattr(found, "what", None) or "", chosen)
    if found.verb in _COMMAND_VERBS and not extras[0].startswith("-"):
        at = own.index(extras[0])
        meant = shlex.join(["sandbox-console", *own[:at], "--", *own[at:]])
        return UsageError(f"unexpected argument {extras[0]!r}: a command goes after --", hint=meant)
    option = next((word.partition("=")[0] for word in extras if word.startswith("-")), "")
    if not option:
        return UsageError(f"unexpected argument {extras[0]!r}", hint=f"{chosen.prog} --help")
    hint = _without_option(option, chosen) or _nearest(option, _options(chosen), chosen.prog)
    return UsageError(f"unknown option {option}", hint=hint)


def _without_option(option: str, parser: argparse.ArgumentParser) -> str:
    """What to write where the value takes no option: ``--name`` of docker and kubectl."""
    word = option.lstrip("-")
    plain = (one.metavar for one in parser._actions if not one.option_strings and one.dest in (word, f"{word}s"))  # noqa: SLF001
    place = next(plain, None)
    return f"the {word} needs no option: {parser.prog} {place}" if place else ""


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001
        yield from action.option_strings


def _nearest(word: str, known: Iterable[str], prog: str) -> str:
    near = nearest(word, known)
    return f"did you mean {near}?" if near else f"{prog} --help"
