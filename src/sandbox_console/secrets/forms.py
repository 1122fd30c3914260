"""The forms in which a value usually turns up in output."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

LEAST = 8
"""Bytes; a shorter form would hide ordinary words as well."""

_WRAPS = {"base64": (76, 64), "hex": (60,)}  # columns of base64(1), PEM and xxd -p, which break long values


def forms(value: str) -> dict[bytes, str]:
    """A value raw, URL-encoded, JSON-escaped, in hex and in base64 at its three alignments, each with its name.

    Output comes by lines, and a terminal ends them its own way: a value of many lines is found by each of them too.
    """
    found = dict(_forms(value))
    lines = value.splitlines()
    if len(lines) > 1:
        for line in lines:
            found = dict(_forms(line)) | found
    return {form: name for form, name in found.items() if len(form) >= LEAST}


def _forms(value: str) -> Iterator[tuple[bytes, str]]:
    raw = value.encode("utf-8", "surrogatepass")
    yield from _url(value)
    yield from _json(value)
    for text in (raw.hex(), raw.hex().upper()):
        yield from _wrapped(text.encode(), "hex")
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        yield from _wrapped(encode(raw), "base64")
        for skip in range(3):
            # Only whole groups of three bytes encode the same whatever stands around them.
            yield encode(raw[skip : skip + (len(raw) - skip) // 3 * 3]), "base64"
    yield raw, "raw"


def _url(value: str) -> Iterator[tuple[bytes, str]]:
    data = value.encode("utf-8", "surrogatepass")
    for encoded in (quote(data, safe=""), quote(data), quote_plus(data)):
        yield encoded.encode(), "url"
        yield _small_escapes(encoded).encode(), "url"


def _small_escapes(encoded: str) -> str:
    """``%2F`` as ``%2f``; the rest as it is."""
    head, *rest = encoded.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])


def _json(value: str) -> Iterator[tuple[bytes, str]]:
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)[1:-1]
        for shown in (text, text.replace("/", "\\/")):
            yield shown.encode("utf-8", "surrogatepass"), "json"


def _wrapped(text: bytes, name: str) -> Iterator[tuple[bytes, str]]:
    yield text, name
    for width in _WRAPS[name]:
        if len(text) > width:
            for at in range(0, len(text), width):
                yield text[at : at + width], name
