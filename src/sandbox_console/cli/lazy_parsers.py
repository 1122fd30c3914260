"""Verbs of an argparse parser whose arguments are added only if the verb is used.

A command uses one of 79 parsers. Making them all takes 15 ms of its CPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Recorded:
    """Stands for a parser, or for what one of its methods returned, and remembers which methods were called."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, tuple[Any, ...], dict[str, Any], Recorded]] = []

    def __getattr__(self, name: str) -> Callable[..., Recorded]:
        def record(*args: Any, **options: Any) -> Recorded:
            result = Recorded()
            self._calls.append((name, args, options, result))
            return result

        return record

    def replay(self, real: Any) -> None:
        """Call the same methods on the real object, in the same order."""
        for name, args, options, result in self._calls:
            result.replay(getattr(real, name)(*args, **options))


class Parsers(Mapping[str, argparse.ArgumentParser]):
    """Parsers by name, each made when it is first looked up."""

    def __init__(self) -> None:
        self.makers: dict[str, Callable[[], argparse.ArgumentParser]] = {}
        self._made: dict[str, argparse.ArgumentParser] = {}

    def __getitem__(self, name: str) -> argparse.ArgumentParser:
        if name not in self._made:
            self._made[name] = self.makers[name]()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self.makers

    def __iter__(self) -> Iterator[str]:
        return iter(self.makers)

    def __len__(self) -> int:
        return len(self.makers)


class LateParsers(argparse._SubParsersAction):  # type: ignore[type-arg] # noqa: SLF001 - argparse has no public name
    """The verbs of a parser, for ``add_subparsers(action=LateParsers)``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._parsers = Parsers()
        # Where argparse looks a verb up, and where its help and errors find the names.
        self._name_parser_map = self.choices = self._parsers  # type: ignore[assignment]

    def add_parser(self, name: str, *, help: str | None = None, **options: Any) -> Any:
        """Add a verb to the help. The result takes the calls that its parser will get."""
        self._choices_actions.append(self._ChoicesPseudoAction(name, (), help))
        recorded = Recorded()

        def make() -> argparse.ArgumentParser:
            parser: argparse.ArgumentParser = self._parser_class(prog=f"{self._prog_prefix} {name}", **options)
            recorded.replay(parser)
            return parser

        self._parsers.makers[name] = make
        return recorded
