"""Parses YAML that somebody else wrote, by the rules of YAML 1.2 that Compose uses, with a cap on aliases."""

from __future__ import annotations

import re
from typing import Any

import yaml

from sandbox_console.errors import UsageError

_MOST_ALIASES = 100
_DEEPEST = 60
"""PyYAML recurses for each level; a compose file has about ten."""

_MOST_NODES = 50_000

_OLD_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Line breaks in YAML 1.1, which PyYAML reads, and plain characters in 1.2."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Plain data only. Text such as ``22:22``, ``on`` and ``1_000`` stays text, which YAML 1.1 reads as a number."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._aliases = self._nodes = self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._nodes += 1
        self._aliases += self.check_event(yaml.AliasEvent)
        self._depth += 1
        if self._aliases > _MOST_ALIASES or self._depth > _DEEPEST or self._nodes > _MOST_NODES:
            raise yaml.YAMLError("it has too many aliases or levels")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), _first)


def _whole(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node)) if len(node.value) < 400 else 0  # a float or a port is no longer


_Loader.add_constructor("tag:yaml.org,2002:int", _whole)


def parse_yaml(name: str, text: str) -> Any:
    """One document as plain data. Raises UsageError, with the line."""
    if found := _OLD_BREAKS.search(text):
        at, code = text.count("\n", 0, found.start()) + 1, f"{ord(found[0]):04X}"
        hint = f'versions of YAML read it differently: write "\\u{code}" between double quotes'
        raise UsageError(f"{name}, line {at}: it contains the character U+{code}", hint=hint)
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UsageError(f"{name}{line}: {error.problem or error}", hint="it is not YAML as Compose reads it") from None
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise UsageError(f"{name}: {error}", hint="it is not YAML as Compose reads it") from None
