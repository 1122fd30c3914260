"""Keeps secrets out of audit rows: masks the known ones, and hashes words that may hold an unknown one.

Until the value is read, the row has a keyed hash in place of such a word.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from typing import Any

_FIELDS = ("argv", "command", "shell", "labels", "user", "workdir")
_INNER = ("spec", "diff")

_VARIABLE = re.compile(r"[A-Za-z_][A-Z0-9_]*")
"""A variable's usual name. ``--env VALUE``, without a name, makes a name of another form."""

_OPTION = re.compile(r"--[a-z]+(-[a-z]+)*")
"""An option's name, which says what a command does and is no secret: no value looks like this."""


class Words:
    """The words of one action. Each of at least ``least`` bytes, except an option's name, is replaced by a hash."""

    def __init__(self, body: Mapping[str, Any], key: bytes, least: int) -> None:
        self._key, self._least = key, least
        self._hashes: dict[str, str] = {}
        self.body = self._withheld(body)
        """The body with hashes for words, including its spec or diff."""
        self.arguments = _arguments(body)
        """The words taken from the body, by field."""

    def text(self, text: str) -> str:
        """``text`` with each of the words replaced by its hash, as an error may name what could not be run."""
        if not self._hashes:
            return text
        longest = sorted(self._hashes, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest)), lambda match: self._hashes[match[0]], text)

    def _withheld(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: self._hashed(value)
            if name in _FIELDS
            else [one if _VARIABLE.fullmatch(str(one)) else self._hash(str(one)) for one in value]
            if name == "env" and isinstance(value, (list, tuple))
            else self._withheld(value)
            if name in _INNER and isinstance(value, Mapping)
            else value
            for name, value in body.items()
        }

    def _hashed(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._hash(value)
        if isinstance(value, Mapping):
            return {self._hash(str(name)): self._hashed(one) for name, one in value.items()}
        return [self._hashed(one) for one in value] if isinstance(value, (list, tuple)) else value

    def _hash(self, word: str) -> str:
        data = word.encode("utf-8", "surrogatepass")
        if len(data) < self._least or _OPTION.fullmatch(word):
            return word
        made = f"hmac:{hmac.new(self._key, data, hashlib.sha256).hexdigest()[:16]}"
        self._hashes |= dict.fromkeys((word, repr(word)[1:-1], _as_told(word)), made)
        return made


def _as_told(word: str) -> str:
    """The word as an engine's error has it, which is text: bytes that are none were replaced."""
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return word


def _arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: body[name] for name in _FIELDS if body.get(name)}
    for inner in _INNER:
        if isinstance(body.get(inner), Mapping) and (more := _arguments(body[inner])):
            found[inner] = more
    return found


def masked(value: Any, mask: Callable[[str], str]) -> Any:
    """``value`` with every string in it, keys too, passed through ``mask``; tuples become lists."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {mask(str(key)): masked(item, mask) for key, item in value.items()}
    return [masked(item, mask) for item in value] if isinstance(value, (list, tuple)) else value
