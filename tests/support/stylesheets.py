"""Parses the style sheets of widgets once for each worker, not once for each app: a seventh of an app's start."""

from __future__ import annotations

from typing import Any

from textual.cache import LRUCache
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet

_parsed: dict[frozenset[tuple[str, str]], LRUCache[tuple[Any, ...], list[RuleSet]]] = {}
_init, _set_variables = Stylesheet.__init__, Stylesheet.set_variables


def share() -> None:
    """Let all apps of this process use the same parsed rules, which only depend on the text and the variables."""
    Stylesheet.__init__ = _init_with_shared  # type: ignore[method-assign]
    Stylesheet.set_variables = _set_variables_and_share  # type: ignore[method-assign]


def _init_with_shared(self: Stylesheet, *, variables: dict[str, str] | None = None) -> None:
    _init(self, variables=variables)
    _use_shared(self)


def _set_variables_and_share(self: Stylesheet, variables: dict[str, str]) -> None:
    self._parse_cache = LRUCache(1)  # what is shared must not be cleared
    _set_variables(self, variables)
    _use_shared(self)


def _use_shared(self: Stylesheet) -> None:
    self._parse_cache = _parsed.setdefault(frozenset(self._variables.items()), LRUCache(1024))
