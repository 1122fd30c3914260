"""Finds known secrets, and text that looks like one, in bytes. A hit carries a fingerprint, never the value."""

from __future__ import annotations

import hashlib
import hmac
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ahocorasick_rs import BytesAhoCorasick, MatchKind
from msgspec import Struct

from sandbox_console.model.lazy_pattern import lazy_pattern
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.secrets import control_strings, visible_text
from sandbox_console.secrets.encodings import forms
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.screen import Screen, roams
from sandbox_console.secrets.terminal_line import Line

_DRAWN = "drawn on a screen"
_OVERLAP = 64 * 1024 * 2
"""How many bytes are kept from one chunk to the next: the longest value, in hex."""

# The formats that the issuers of these tokens publish for scanners like this one.
_SHAPES = {
    "an AWS access key": rb"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{40,255})\b",
    "a GitLab token": rb"\bglpat-[A-Za-z0-9_-]{20,64}",
    "a Slack token": rb"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}",
    "an API key": rb"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,250}",
    "a Google key": rb"\bAIza[0-9A-Za-z_-]{35}\b",
    "a Stripe key": rb"\b[rs]k_live_[0-9A-Za-z]{20,250}\b",
    "a private key": rb"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----[^-]{40,16384}",
    "a JSON Web Token": rb"\beyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{20,1000}",
}
_LOOKS = lazy_pattern(b"|".join(b"(%s)" % shape for shape in _SHAPES.values()))
_SHAPE_NAMES = list(_SHAPES)


def looks_like(text: str) -> str:
    """What a text, or a part of it, looks like, such as "a GitHub token"; empty if it looks like no token."""
    match = _LOOKS.search(text.encode("utf-8", "replace"))
    return _SHAPE_NAMES[(match.lastindex or 1) - 1] if match else ""


class Hit(Struct, frozen=True):
    """One hit. ``secret`` is its name in the config; empty if it only looks like one, of the kind ``what``.

    ``fingerprint`` is the beginning of an HMAC-SHA256 with a key that only this installation has: a value always has
    the same fingerprint, which reveals nothing of it. ``line`` counts from 1.
    """

    secret: str
    what: str
    fingerprint: str
    line: int


class Scanner:
    """Searches for values. ``fingerprints`` has the fingerprint of each, by name."""

    def __init__(self, secrets: Iterable[ResolvedSecret], key: bytes) -> None:
        self._key = key
        secrets = list(secrets)
        self._values = {secret.name: Redactor([secret.value]) for secret in secrets}
        known = [(secret, forms(secret.value)) for secret in secrets]
        self._names = {form: (secret.name, what) for secret, found in known for form, what in found.items()}
        self.fingerprints = {
            secret.name: self._fingerprint(secret.value.encode("utf-8", "replace")) for secret, _ in known
        }
        self._forms = list(self._names)
        self._automaton = BytesAhoCorasick(self._forms, matchkind=MatchKind.LeftmostLongest) if self._forms else None

    def scan(self, chunks: Iterable[bytes]) -> Iterator[Hit]:
        """Every hit in a stream of chunks, without duplicates."""
        stream = Stream(self)
        for chunk in chunks:
            yield from stream.feed(chunk)
        yield from stream.feed(b"", last=True)

    def find(self, data: bytes) -> list[tuple[int, int, str, str, str]]:
        """(start, end, secret, what, fingerprint) of each hit, in the order of their starts.

        A value that is broken up by invisible codes is also found.
        """
        found = self._found(data)
        if not visible_text.plain(data):
            for view in self._views(data):
                known = [(start, end) for start, end, *_ in found]
                for start, end, name, what, fingerprint in self._found(view.data):
                    begin, stop = view.span(start, end)
                    if not any(one < stop and begin < other for one, other in known):
                        found.append((begin, stop, name, what, fingerprint))
            if b"\0" not in data and roams(data):
                known = [(start, end) for start, end, *_ in found]
                found += (
                    hit for hit in self._drawn(data) if not any(one < hit[1] and hit[0] < other for one, other in known)
                )
        return sorted(found)

    def _drawn(self, data: bytes) -> Iterator[tuple[int, int, str, str, str]]:
        """Lines that may complete a value on a screen, by moves to other rows."""
        for name, value in self._values.items():
            screen, at = Screen(value), 0
            for line in data.split(b"\n"):
                before = screen.masked
                screen.mask(line + b"\n")
                if screen.masked > before:
                    yield at, at + len(line), name, _DRAWN, self.fingerprints[name]
                at += len(line) + 1

    def _views(self, data: bytes) -> Iterator[visible_text.View]:
        for reading in (data, *control_strings.readings(data)):
            yield visible_text.seen(reading)
        if b"\0" in data or not visible_text.moves(data):  # data with NUL bytes is not text
            return
        at = 0
        for line in data.split(b"\n"):
            if visible_text.moves(line):
                yield Line().write(line, at).view()
            at += len(line) + 1

    def _found(self, data: bytes) -> list[tuple[int, int, str, str, str]]:
        found = []
        if self._automaton is not None:
            for at, start, end in self._automaton.find_matches_as_indexes(data):
                name, what = self._names[self._forms[at]]
                found.append((start, end, name, what, self.fingerprints[name]))
        known = [(start, end) for start, end, *_ in found]
        for match in _LOOKS.finditer(data):
            if not any(start < match.end() and match.start() < end for start, end in known):
                what = _SHAPE_NAMES[(match.lastindex or 1) - 1]
                found.append((*match.span(), "", what, self._fingerprint(match[0])))
        return found

    def _fingerprint(self, value: bytes) -> str:
        return hmac.new(self._key, value, hashlib.sha256).hexdigest()[:16]


class Stream:
    """Searches one stream in chunks. A hit across two chunks is found, and none is reported twice."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner
        self._held = b""
        self._told = 0  # how far into the held bytes hits have been reported
        self._lines = 1

    def feed(self, chunk: bytes, *, last: bool = False) -> list[Hit]:
        """The hits that are certain now. A value that is not complete yet waits for the next chunk."""
        data = self._held + chunk
        if not last and len(data) < 2 * _OVERLAP:
            self._held = data
            return []
        sure = len(data) if last else len(data) - _OVERLAP
        newlines = [match.start() for match in re.finditer(b"\n", data)]
        hits = []
        for start, end, name, what, fingerprint in self._scanner.find(data):
            if self._told <= start < sure:
                hits.append(Hit(name, what, fingerprint, self._lines + bisect_right(newlines, start)))
                self._told = end
        cut = max(0, sure - _OVERLAP)  # what comes before a hit decides whether it is one
        self._told = max(self._told, sure) - cut
        self._lines += bisect_right(newlines, cut - 1)
        self._held = data[cut:]
        return hits
