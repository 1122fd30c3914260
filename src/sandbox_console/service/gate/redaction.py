"""Keeps secrets out of audit rows: masks the known ones, and hashes words that may hold an unknown one.

Until the value is read, the row has a keyed hash in place of such a word.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_FIELDS = ("argv", "command", "shell", "labels", "user", "workdir")
_INNER = ("spec", "diff")
_SENTENCE = "reason"
_NAMES = "secrets"

_USUAL = {
    "runtime": re.compile(r"[a-z]+([.-][a-z0-9]+)*"),
    "ports": (_PLACE := re.compile(r"(?=.*[.:])[0-9a-fA-F.:\[\]]+")),
    "address": _PLACE,
    "workspace": re.compile(r"[/~.].*", re.DOTALL),
    "signal": re.compile(r"[A-Z]+([0-9]|[+-][0-9]+)?"),
    "attach": (_SHELL := re.compile(r"[0-9a-f]{12}")),
    "id": _SHELL,
}
"""Fields that can have values of one form only, which are no secrets. Anything else in them is a mistake."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Z0-9_]*")
"""A variable's usual name. ``--env VALUE``, without a name, makes a name of another form."""

_OPTION = re.compile(r"--[a-z]+(-[a-z]+)*")
"""An option's name, which says what a command does and is no secret: no value looks like this."""


_PROSE = re.compile(r"\W*[^\W\d_]{,20}\W*|[\W\d_]*")
"""A word of a sentence: letters alone, or none, as in a date or an address. No key of a service looks like this."""

_PARTS, _PARTED_MOST = re.compile(r"[\s=:@,;'\"]+"), 4096
"""Where an error may take a word apart, as a port's or an option's value."""


class Words:
    """The words of one action. Each of at least ``least`` bytes, except an option's name, is replaced by a hash.

    ``names`` are those of secrets, which are known to be none.
    """

    def __init__(self, body: Mapping[str, Any], key: bytes, least: int, names: Sequence[str] = ()) -> None:
        self._key, self._least, self._names = key, least, names
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

    def sentence(self, text: str) -> str:
        """``text`` with a hash for each word in it that is none of a language."""
        return re.sub(r"\S+", lambda match: self._hash(match[0], _PROSE), text)

    def _withheld(self, body: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._field(name, value) for name, value in body.items()}

    def _field(self, name: str, value: Any) -> Any:
        if name in _FIELDS:
            return self._hashed(value)
        if name in _USUAL:
            return self._hashed(value, _USUAL[name])
        if name == _SENTENCE and isinstance(value, str):
            return self.sentence(value)
        if name in ("env", _NAMES) and isinstance(value, (list, tuple)):
            return self._named(name, value)
        return self._withheld(value) if name in _INNER and isinstance(value, Mapping) else value

    def _named(self, field: str, names: Sequence[Any]) -> list[Any]:
        """The names of variables or secrets, where a value was written in place of one. A diff has lists of them."""
        return [
            self._named(field, one)
            if isinstance(one, (list, tuple))
            else one
            if one is None or one in self._names or (field == "env" and _VARIABLE.fullmatch(str(one)))
            else self._hash(str(one))
            for one in names
        ]

    def _hashed(self, value: Any, usual: re.Pattern[str] = _OPTION) -> Any:
        if isinstance(value, str):
            return self._hash(value, usual)
        if isinstance(value, Mapping):
            return {self._hash(str(name), usual): self._hashed(one, usual) for name, one in value.items()}
        return [self._hashed(one, usual) for one in value] if isinstance(value, (list, tuple)) else value

    def _hash(self, word: str, usual: re.Pattern[str] = _OPTION) -> str:
        data = word.encode("utf-8", "surrogatepass")
        if len(data) < self._least or usual.fullmatch(word):
            return word
        made = f"hmac:{hmac.new(self._key, data, hashlib.sha256).hexdigest()[:16]}"
        parts = _PARTS.split(word) if len(word) <= _PARTED_MOST else ()
        named = [part for part in parts if len(part) >= self._least and not usual.fullmatch(part)]
        self._hashes |= dict.fromkeys((word, repr(word)[1:-1], _as_told(word), *named), made)
        return made


def _as_told(word: str) -> str:
    """The word as an engine's error has it, which is text: bytes that are none were replaced."""
    try:
        return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return word


def _arguments(body: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: body[name] for name in (*_FIELDS, *_USUAL, _SENTENCE, _NAMES) if body.get(name)}
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
