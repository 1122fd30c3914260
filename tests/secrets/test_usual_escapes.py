"""A value in the escapes that programs write by themselves, and with marks on its letters, is masked and found."""

from __future__ import annotations

import html
import json
import os
import shlex
import subprocess
import unicodedata

import pytest

from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.secrets.leaks import Scanner
from sandbox_console.secrets.redactor import MASK, Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor

VALUE = 'it\'s<hunter2>&"Tr0ub\\4dor" ä;$x'


def go_json(text: str) -> str:
    """As Go's encoding/json writes it, in which Docker, kubectl and Terraform print."""
    found = json.dumps(text, ensure_ascii=False)
    return found.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def shown_by_bash(script: str) -> str:
    done = subprocess.run(
        ["bash", "-c", script], env={"VALUE": VALUE, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout + done.stderr


ESCAPED = {
    "go json": go_json(VALUE),
    "json": json.dumps(VALUE),
    "html": html.escape(VALUE),
    "html without quotes": html.escape(VALUE, quote=False),
    "html of Go": html.escape(VALUE).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
    "xml": html.escape(VALUE).replace("&#x27;", "&apos;"),
    "shlex": shlex.quote(VALUE),
    "bash printf %q": shown_by_bash('printf "%q\\n" "$VALUE"'),
    "bash set -x": shown_by_bash('set -x; : "$VALUE"'),
    "python": repr(VALUE),
    "python bytes": repr(VALUE.encode()),
}


def ways(value: str, data: bytes) -> list[bytes]:
    stream = StreamRedactor(Redactor([value]))
    streamed = b"".join(stream.feed(data[at : at + 1]) for at in range(len(data)))
    return [Redactor([value]).apply(data), streamed + stream.flush(), Redactor([value]).text(data.decode()).encode()]


def found(value: str, data: bytes) -> bool:
    scanner = Scanner([ResolvedSecret("T", value)], b"k" * 32)
    return all(list(scanner.scan(chunks)) for chunks in ([data], [data[:9], data[9:]]))


@pytest.mark.parametrize("name", ESCAPED)
def test_what_programs_escape_is_masked_and_found(name):
    data = b"a " + ESCAPED[name].encode() + b" z\n"
    assert found(VALUE, data)
    for shown in ways(VALUE, data):
        assert MASK in shown
        assert b"unter2" not in shown
        assert b"4dor" not in shown


MARKS = [
    chr(at)
    for at in (0x300, 0x301, 0x332, 0x336, 0x36F, 0x1AB0, 0x1AC0, 0x1DC0, 0x1DFF, 0x20D0, 0x20E3, 0x20F0, 0xFE20)
]


@pytest.mark.parametrize("mark", MARKS, ids=lambda one: f"{ord(one):04X}")
@pytest.mark.parametrize("every", [True, False])
def test_marks_on_letters_hide_no_value(mark, every):
    """Underlined or struck through by marks, as a web page's text tools write it, a value is as readable as without."""
    value = "hunter2-Tr0ub4dor-3"
    data = "a " + (mark.join(value) if every else value[:8] + mark + value[8:]) + f"{mark} z\n"
    assert found(value, data.encode())
    for shown in ways(value, data.encode()):
        assert MASK in shown
        assert b"r2" not in shown
        assert b"Tr" not in shown
    assert "".join(one for one in data if not unicodedata.category(one).startswith("M")) == f"a {value} z\n"


@pytest.mark.parametrize("text", ["Việt", "naïve cafe\u0301", "a\u0332b\u0332", "\u0301"])
def test_other_text_with_marks_passes_unchanged(text):
    for shown in ways("hunter2-Tr0ub4dor-3", text.encode()):
        assert shown == text.encode()


def test_a_value_with_marks_of_its_own_is_masked():
    value = unicodedata.normalize("NFD", "Ünïcödé-Pässwörd")
    for shown in ways(value, f"a {value} z\n".encode()):
        assert shown == b"a " + MASK + b" z\n"
