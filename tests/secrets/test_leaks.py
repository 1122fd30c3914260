"""The scanner: every form at any chunking, and what only looks like a token."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.secrets import leaks
from sandbox_console.secrets.leaks import Scanner
from sandbox_console.secrets.redactor import MASK, Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor

KEY = b"k" * 32
VALUE = 'pa"ss/wört with=space'
FORMS = {
    "raw": VALUE.encode(),
    "url": quote(VALUE, safe="").encode(),
    "json": json.dumps(VALUE)[1:-1].encode(),
    "hex": VALUE.encode().hex().encode(),
    "base64": base64.b64encode(VALUE.encode()),
}


def scanner(*values: str) -> Scanner:
    return Scanner([ResolvedSecret(f"S{at}", value) for at, value in enumerate(values)], KEY)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_told_by_its_name_and_line(form):
    [hit] = scanner(VALUE).scan([b"one\ntwo " + FORMS[form] + b" more\n"])
    assert (hit.secret, hit.what, hit.line) == ("S0", form, 2)
    assert len(hit.fingerprint) == 16
    assert VALUE not in repr(hit)


def test_a_fingerprint_is_the_values_and_the_installations():
    def fingerprint(value: str, key: bytes) -> str:
        [hit] = Scanner([ResolvedSecret("S", value)], key).scan([value.encode()])
        return hit.fingerprint

    assert fingerprint(VALUE, KEY) == fingerprint(VALUE, KEY)
    assert len({fingerprint(VALUE, KEY), fingerprint(VALUE, b"other" * 8), fingerprint(f"{VALUE}!", KEY)}) == 3


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("AKIA" + "ABCDEFGHIJKLMNOP", "an AWS access key"),
        ("ghp_" + "a1B2" * 9, "a GitHub token"),
        ("sk-ant-" + "x1" * 20, "an API key"),
        ("-----BEGIN RSA PRIVATE " + "KEY-----\n" + "QUJD" * 20 + "\n-----END", "a private key"),
    ],
)
def test_what_looks_like_a_token_is_told_without_it(text, what):
    [hit] = scanner().scan([f"x={text} ".encode()])
    assert (hit.secret, hit.what) == ("", what)
    assert text not in repr(hit)


def test_a_known_value_is_told_once_and_by_its_name():
    token = "ghp_" + "a1B2" * 9
    assert [hit.secret for hit in scanner(token).scan([token.encode()])] == ["S0"]


@given(st.lists(st.sampled_from([*FORMS.values(), b"x\n", b"pa", VALUE.encode()[:9]]), max_size=20), st.integers(1, 40))
def test_any_chunking_finds_what_the_whole_has(parts, size):
    text, whole = b" ".join(parts), scanner(VALUE)
    expected = [(hit.what, hit.line) for hit in whole.scan([text])]
    chunks = [text[at : at + size] for at in range(0, len(text), size)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaks, "_OVERLAP", 128)  # longer than any form here, as the real one is
        assert [(hit.what, hit.line) for hit in whole.scan(chunks)] == expected


@given(
    st.text(min_size=8, max_size=60).filter(
        lambda value: len(value.encode("utf-8", "surrogatepass")) >= 8 and value.strip()
    ),
    st.sampled_from(["raw", "url", "json", "json-ascii", "hex", "base64-0", "base64-1", "base64-2"]),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_any_value_in_any_form_is_masked_however_it_is_cut(value, form, cuts):
    try:
        raw = value.encode()
    except UnicodeEncodeError:
        return
    if len(value.splitlines()) > 1 or len(raw) < 12:
        return  # a value of lines is masked by its lines; the shortest leave less than 8 bytes of base64
    shape = {
        "raw": raw,
        "url": quote(value, safe="").encode(),
        "json": json.dumps(value, ensure_ascii=False)[1:-1].encode(),
        "json-ascii": json.dumps(value)[1:-1].encode(),
        "hex": raw.hex().encode(),
    }
    if form.startswith("base64"):
        text = base64.b64encode(b"u" * int(form[-1]) + raw + b"??")
    else:
        text = b"<" + shape[form] + b">"
    stream, shown, at = StreamRedactor(Redactor([value])), b"", 0
    for cut in [*sorted(min(cut, len(text)) for cut in cuts), len(text)]:
        shown += stream.feed(text[at:cut])
        at = cut
    shown += stream.flush()
    assert MASK in shown
    # What base64 leaves of it are the characters it shares with its neighbours.
    assert len(shown) <= len(MASK) + (2 if not form.startswith("base64") else 12)
