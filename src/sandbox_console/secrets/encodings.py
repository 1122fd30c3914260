"""Works out the forms in which a secret's value usually appears in output."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote, quote_plus

LEAST = 8
"""Bytes. Masking shorter forms would hide ordinary words as well."""

_ENCODERS = (base64.b64encode, base64.urlsafe_b64encode)
_EVERY = sum(value << 6 * (63 - value) for value in range(64))  # bytes that encode to the alphabet in order
Edges = tuple[frozenset[int], frozenset[int]]
"""The characters that may come before and after a form and contain bits of its value."""

_WRAPS = {"base64": (76, 64), "hex": (60,)}  # columns of base64(1), PEM and xxd -p, which break long values


def forms(value: str) -> dict[bytes, str]:
    """A value raw, URL-encoded, escaped, in hex and in base64 at its three alignments, each with a name.

    It is escaped as in JSON, HTML, Python's literals and a shell's words.

    Each line of a multi-line value is a form too, as output comes in lines, which a terminal ends in its own way.
    """
    found = dict(_forms(value))
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            found = dict(_forms(line)) | found
    return {form: name for form, name in found.items() if len(form) >= LEAST}


def edges(value: str) -> dict[bytes, Edges]:
    """The characters beside the base64 forms of a value, within longer text, that also contain bits of it."""
    found: dict[bytes, Edges] = {}
    for text in {value, *value.splitlines()}:
        raw = text.encode("utf-8", "surrogatepass")
        for encode in _ENCODERS:
            found |= {form: sides for form, sides in _within(raw, encode) if len(form) >= LEAST}
    return found


def _within(raw: bytes, encode: Callable[[bytes], bytes]) -> Iterator[tuple[bytes, Edges]]:
    """The characters that depend only on the value, for 0, 1 and 2 bytes before it in its group of three."""
    for before in range(3 if raw else 0):
        after = -(before + len(raw)) % 3
        low = encode(bytes(before) + raw + bytes(after))
        high = encode(b"\xff" * before + raw + b"\xff" * after)
        first = (0, 2, 3)[before]
        last = len(low) - (after + 1 if after else 0)
        lefts = _between(low[first - 1], high[first - 1], encode, 1 << (4 if before == 1 else 2)) if before else b""
        rights = _between(low[last], high[last], encode, 1) if after else b""
        yield low[first:last], (frozenset(lefts), frozenset(rights))


def _between(low: int, high: int, encode: Callable[[bytes], bytes], step: int) -> Iterable[int]:
    """Every base64 character that contains some bits of a value, with any other bits."""
    alphabet = encode(bytes(value >> shift & 255 for value in (_EVERY,) for shift in range(376, -8, -8)))
    return alphabet[alphabet.index(low) : alphabet.index(high) + 1 : step]


def _forms(value: str) -> Iterator[tuple[bytes, str]]:
    raw = value.encode("utf-8", "surrogatepass")
    yield from _url(value)
    yield from _json(value)
    yield from _markup(value)
    yield from _words(value)
    for text in (raw.hex(), raw.hex().upper()):
        yield from _wrapped(text.encode(), "hex")
    for encode in _ENCODERS:
        yield from _wrapped(encode(raw), "base64")
        yield from ((form, "base64") for form, _ in _within(raw, encode))
    yield raw, "raw"


def _url(value: str) -> Iterator[tuple[bytes, str]]:
    data = value.encode("utf-8", "surrogatepass")
    for encoded in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield encoded.encode(), "url"
        yield _small_escapes(encoded).encode(), "url"


def _small_escapes(encoded: str) -> str:
    """Text with escapes such as ``%2F`` in lower case (``%2f``)."""
    head, *rest = encoded.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])


def _json(value: str) -> Iterator[tuple[bytes, str]]:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        for shown in (text, text.replace("/", "\\/"), _safe_in_html(text)):
            yield shown.encode("utf-8", "surrogatepass"), "json"


def _safe_in_html(text: str) -> str:
    """JSON as Go's encoder writes it, and so Docker, kubectl and Terraform."""
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _markup(value: str) -> Iterator[tuple[bytes, str]]:
    """In HTML and XML, with each of the usual ways to write a quotation mark."""
    for quoted in (False, True):
        text = html.escape(value, quoted)
        numbers = text.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")
        for shown in (text, numbers, text.replace("&#x27;", "&apos;"), text.replace("&#x27;", "&#39;")):
            yield shown.encode("utf-8", "surrogatepass"), "html"


def _words(value: str) -> Iterator[tuple[bytes, str]]:
    """As a word of a shell, which ``set -x`` prints, and in Python's literals."""
    bare = re.sub(
        r"(^[~#]|[^A-Za-z0-9_@%+=:./~#\n\x80-\U0010ffff-])", r"\\\1", value
    )  # as printf %q and histories have it
    for shown in (bare, value.replace("'", "'\\''"), shlex.quote(value)[1:-1] if "'" in value else value):
        yield shown.encode("utf-8", "surrogatepass"), "shell"
    for literal in (repr(value)[1:-1], repr(value.encode("utf-8", "surrogatepass"))[2:-1]):
        yield literal.encode("utf-8", "surrogatepass"), "python"


def _wrapped(text: bytes, name: str) -> Iterator[tuple[bytes, str]]:
    yield text, name
    for width in _WRAPS[name]:
        if len(text) > width:
            for at in range(0, len(text), width):
                yield text[at : at + width], name
