"""Drafts: what was typed into a form, kept in the state folder until it is applied or discarded.

A file for each form, readable only by its owner, is written at every change, so that a crash loses nothing. Text with
the value of a secret that this process has read, or that looks like one, is left out.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets as random
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from sandbox_console.model.secret import SECRET_WORD, shown_value
from sandbox_console.model.shell_words import shell_words
from sandbox_console.model.spec_fields import BY_NAME, Kind
from sandbox_console.tui.base.saved_json import read_saved, save

KEPT_S = 30 * 86_400
"""A draft that nobody has opened for this long is removed."""

Mask = Callable[[str], str]
"""Hides the known values of secrets in a text."""


class Draft(NamedTuple):
    """Texts by field, the chosen backend and host, the time (Unix seconds), and what was left out, by field.

    ``note`` says where the texts are from, if nobody typed them.
    """

    texts: Mapping[str, str]
    host: tuple[str, str] | None = None
    at: float = 0.0
    left_out: Mapping[str, tuple[str, ...]] = {}
    note: str = ""

    @property
    def lacks(self) -> str:
        """What was left out, for a sentence: ``Variables (API_TOKEN), Command``."""
        found = ((BY_NAME[name].label, keys) for name, keys in self.left_out.items() if name in BY_NAME)
        return ", ".join(f"{label} ({', '.join(keys)})" if keys else label for label, keys in found)


class DraftFile:
    """The draft of one open form. A lock that ends with the process shows other consoles that it is in use.

    ``about`` names the form: the user, and the sandbox that it changes or nothing.
    """

    def __init__(self, folder: Path, about: str) -> None:
        self._folder = folder
        self._key = hashlib.sha256(about.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self._lock = -1
        self._file: Path | None = None

    def take(self) -> Draft | None:
        """Return the newest draft that no open form uses, and lock it; None if there is none."""
        with suppress(OSError):
            for path in sorted(self._folder.glob("*.json"), key=_age):
                if _age(path) > KEPT_S:
                    _remove(path)
                elif path.name.startswith(f"{self._key}-") and (draft := _read(path)) and self._hold(path):
                    return draft
        return None

    def write(self, texts: Mapping[str, str], host: tuple[str, str] | None, at: float, mask: Mask) -> Draft:
        """Replace the stored texts, and return what is stored of the new ones. Raises OSError."""
        draft = without_secrets(texts, host, at, mask)
        if self._lock < 0:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._hold(self._folder / f"{self._key}-{random.token_hex(4)}.json")
        if self._file is not None:
            save(self._file, draft._asdict())
        return draft

    def drop(self) -> None:
        """Remove the draft, also if the form was closed while its action ran."""
        if self._file is not None:
            _remove(self._file)
        self._file = None
        self.close()

    def close(self) -> None:
        """Leave the draft for another form."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def _hold(self, path: Path) -> bool:
        handle = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._lock, self._file = handle, path
        return True


def without_secrets(texts: Mapping[str, str], host: tuple[str, str] | None, at: float, mask: Mask) -> Draft:
    """Return a draft without texts that contain a known secret's value, or look as if they did.

    Of a table, such as the variables, only the entries concerned are left out.
    """
    kept: dict[str, str] = {}
    left_out: dict[str, tuple[str, ...]] = {}
    for name, text in texts.items():
        if BY_NAME[name].kind is Kind.TABLE:
            pairs = list(_pairs(text))
            hidden = [key for key, value in pairs if _may_hide(key, value, mask)]
            kept[name] = shlex.join(_written(key, value) for key, value in pairs if key not in hidden)
            if hidden:
                left_out[name] = tuple(key if mask(key) == key else "…" for key in hidden)
        elif any(_may_hide(key, value, mask) for key, value in _options(text)):
            left_out[name] = ()
        else:
            kept[name] = text
    return Draft(kept, host, at, left_out)


def _may_hide(key: str, value: str | None, mask: Mask) -> bool:
    if value is None:
        return mask(key) != key
    return shown_value(key, value) != value or mask(value) != value or mask(key) != key


def _written(key: str, value: str | None) -> str:
    return key if value is None else f"{key}={value}"


def _pairs(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield key and value of each word; a word without ``=``, which is being typed, has no value."""
    for word in _words(text):
        key, equals, value = word.partition("=")
        yield key, value if equals else None


def _options(text: str) -> Iterator[tuple[str, str]]:
    """Yield possible names with values: the whole text, ``NAME=value``, and an option with the word after it."""
    yield "", text
    words = _words(text)
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        key, _, value = word.partition("=")
        yield key, value
        if word.startswith("-") and "=" not in word and SECRET_WORD.search(word) and not following.startswith("-"):
            yield word, following


def _words(text: str) -> list[str]:
    """Split as a shell does; a quote that is still open ends with the text."""
    for closing in ("", "'", '"', '\\"'):
        with suppress(ValueError):
            return shell_words(text + closing)
    return text.split()


def _read(path: Path) -> Draft | None:
    found = read_saved(path, lambda kept: isinstance(kept.get("texts"), dict))
    if not found:
        return None
    texts, host, left_out = found["texts"], found.get("host"), found.get("left_out")
    known = {name: text for name, text in texts.items() if name in BY_NAME and isinstance(text, str)}
    omitted = left_out.items() if isinstance(left_out, dict) else ()
    omissions = {name: tuple(map(str, keys)) for name, keys in omitted if isinstance(keys, list)}
    return Draft(known, _host(host), _time(found.get("at")), omissions)


def _host(found: Any) -> tuple[str, str] | None:
    match found:
        case [str(backend), str(host)]:
            return backend, host
    return None


def _time(found: Any) -> float:
    return float(found) if isinstance(found, int | float) else 0.0


def _age(path: Path) -> float:
    return time.time() - path.stat().st_mtime


def _remove(path: Path) -> None:
    for file_path in (path, path.with_suffix(".lock")):
        file_path.unlink(missing_ok=True)
