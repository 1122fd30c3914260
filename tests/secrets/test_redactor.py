from __future__ import annotations

import base64
import json
import random
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.secrets.test_visible_text import streamed

from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.secrets.encodings import edges, forms
from sandbox_console.secrets.redactor import MASK, Redactor
from sandbox_console.secrets.stream_redactor import StreamRedactor
from sandbox_console.secrets.terminal_line import Line
from sandbox_console.secrets.visible_text import lasting, torn
from sandbox_console.service.reads.live_logs import _Masks

VALUES = [
    "hunter2-hunter2",
    "hunter2-hunter2-longer",
    "päss wörd/€=",
    "-----BEGIN KEY-----\nabcdefghij\nklmnopqrst\n-----END KEY-----",
]
SHAPES = [
    lambda v: v.encode(),
    lambda v: quote(v, safe="").encode(),
    lambda v: json.dumps(v)[1:-1].encode(),
    lambda v: v.encode().hex().encode(),
    lambda v: base64.b64encode(v.encode()),
    lambda v: base64.urlsafe_b64encode(v.encode()),
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_form_is_masked(value, shape):
    assert Redactor([value]).apply(b"a " + shape(value) + b" z") == b"a " + MASK + b" z"


@pytest.mark.parametrize("before", [b"u:", b"us:", b"usr:"])
def test_base64_of_a_text_around_the_value_shows_none_of_its_middle(before):
    shown = Redactor([VALUES[0]]).apply(base64.b64encode(before + VALUES[0].encode() + b"!!"))
    assert MASK in shown
    assert len(shown) < 24


def test_a_value_of_many_lines_is_masked_line_by_line_and_behind_a_terminal():
    shown = Redactor([VALUES[3]]).apply(VALUES[3].replace("\n", "\r\n").encode())
    assert b"abcdefghij" not in shown
    assert b"klmnopqrst" not in shown


texts = st.lists(
    st.sampled_from(
        [*(shape(v) for v in VALUES for shape in SHAPES), b"hunter2-", b"x", b"\n", b"-----BEG", b"[secret]"]
    )
).map(b"".join)


@given(texts, st.lists(st.integers(0, 300), max_size=12))
def test_any_chunking_gives_what_the_whole_gives(text, cuts):
    redactor = Redactor(VALUES)
    stream = StreamRedactor(redactor)
    shown, at = b"", 0
    for cut in [*sorted(min(cut, len(text)) for cut in cuts), len(text)]:
        shown += stream.feed(text[at:cut])
        at = cut
    assert shown + stream.flush() == redactor.apply(text)


@settings(deadline=None)
@given(texts)
def test_nothing_is_held_longer_than_it_may_begin_a_value(text):
    stream = StreamRedactor(Redactor(VALUES))
    stream.feed(text)
    held = stream._held[: len(stream._held) - torn(stream._held)]
    assert not held or any(
        form.startswith(held) or (held[0] in beside.get(form, ((), ()))[0] and form.startswith(held[1:]))
        for value in VALUES
        for beside in [edges(value)]
        for form in forms_of(value)
    ), "the beginning of a value, of the base64 that one begins in the middle of, or of a character"


def forms_of(value):
    return forms(value)


def test_without_values_bytes_pass_untouched():
    stream = StreamRedactor(Redactor())
    assert stream.feed(b"anything") == b"anything"
    assert not stream.holding


@pytest.mark.parametrize("values", [[], [VALUES[0]]])
def test_zeros_are_not_written_into_a_line_one_by_one(values, monkeypatch):
    steps = []
    monkeypatch.setattr(Line, "_control", lambda _, text: steps.append(text))
    stream = StreamRedactor(Redactor(values))
    assert b"".join([*(stream.feed(bytes(65536)) for _ in range(4)), stream.flush()]) == bytes(4 * 65536)
    assert len(steps) == 0


@given(
    st.lists(
        st.sampled_from(
            [
                b"ab",
                b"\0",
                b"\x07",
                b"\x0b",
                b"\x0c",
                b"\b",
                b"\r",
                b"\t",
                b"\x7f",
                b"\x1b[2D",
                b"\x1b]x\x07",
                b"\xc2\x9b",
                b"3C",
            ]
        )
    ).map(b"".join)
)
def test_what_is_left_out_of_a_line_leaves_it_as_it_is(data):
    whole, short = Line().write(data), Line().write(lasting(data))
    assert (whole.cells, whole.column, whole.moved) == (short.cells, short.column, short.moved)


def test_its_repr_shows_no_value():
    assert VALUES[0] not in repr(Redactor(VALUES))


def test_joined_lines_of_a_log_are_masked_as_single_ones_are():
    value = "canary-7f3a9b2c1d"
    lines = [
        b"plain\n",
        f"a {value} b\n".encode(),
        b"can\x1b[31mary-7f3a\x1b[0m9b2c1d\n",
        b"x\ry\n",
        b"canary-7f3a",
        b"9b2c1d\n",
    ]
    lines = [*lines * 50, b"canary-7f"]

    def shown(parts):
        masks = _Masks(Redactor([value]))
        items = masks.over([LogRecord(1, Stream.STDOUT, part) for part in parts]) + masks.rest()
        return b"".join(item.data for item in items)

    single = shown(lines)
    assert single.count(b"[secret]") == 150
    whole = b"".join(lines)
    for size in (64, 1000, len(whole)):
        assert shown([whole[at : at + size] for at in range(0, len(whole), size)]) == single


@pytest.mark.parametrize("cut", range(1, 24))
@pytest.mark.parametrize("before", [b"", b"$ ", b"\x1b[1mx\x1b[0m ", b"line\n"])
def test_the_rest_of_a_value_is_masked_where_its_beginning_was_shown(cut, before):
    """A shell shows what it holds back when nothing follows for a while: a prompt may begin as a value does."""
    value = b"SuperSecretValue12345xyz"
    stream = StreamRedactor(Redactor([value.decode()]))
    shown = stream.feed(before + value[:cut]) + stream.flush()
    assert shown == before + value[:cut]
    rest = stream.feed(value[cut:] + b" and more") + stream.flush()
    assert value[cut:] not in rest or len(value) - cut < 2, rest
    assert value not in shown + rest
    assert rest.endswith(b" and more")


def test_a_value_in_many_parts_is_not_shown(tmp_path):
    value = b"SuperSecretValue12345xyz"
    stream = StreamRedactor(Redactor([value.decode()]))
    shown = b"".join(stream.feed(value[at : at + 5]) + stream.flush() for at in range(0, len(value), 5))
    assert value not in shown
    assert shown.startswith(value[:5])
    assert stream.feed(b"\nnext\n") + stream.flush() == b"\nnext\n"


def test_a_value_of_60_kb_is_learnt_in_a_fixed_amount_for_each_byte_and_masked_across_chunks():
    """Each beginning was kept as bytes of its own: 60 KB took 22 GB. Counted in what is kept, as clocks lie."""
    value = base64.b85encode(random.Random(5).randbytes(48_000)).decode()
    redactor = Redactor([value])
    kept = redactor._beginnings
    assert len(kept._short) + len(kept._by_head) <= 8 * len(redactor._forms)
    data = b"before " + value.encode() + b" after\n"
    assert streamed(data, [9, 30_000, 59_000], redactor) == b"before [secret] after\n"
    assert redactor.held_back(data[:40_000]) == 40_000 - len(b"before ")


@given(st.text("ab", min_size=8, max_size=30), st.text("abz", max_size=40))
def test_what_begins_a_value_is_held_back_wherever_it_begins(value, text):
    redactor = Redactor([value])
    size = redactor.held_back(text.encode())
    forms = [form.decode("latin-1") for form in redactor._forms]
    begun = [at for at in range(len(text)) if any(form.startswith(text[at:]) for form in forms if text[at:] != form)]
    assert size >= (len(text) - min(begun) if begun else 0)
