"""`clean` holds for random hostile text: nothing in what it returns can act on a terminal."""

from __future__ import annotations

import random
import re
import unicodedata

import pytest

from sandbox_console.model.text import LINE_CAP, ascii_id, clean, strip_unsafe

PIECES = [
    "\x1b]0;t\x07", "\x1b]52;c;eA==\x07", "\x1b]8;;http://x\x1b\\", "\x1bP$qm\x1b\\", "\x1b[21t", "\x1b[?1049l", "\x9b31m",
    "\x9d0;t\x9c", "\x90q\x9c", "\x1b[31m", "\x1b[38;2;1;2;3m", "\x1b[4:3m", "\x1b[", "\x1b", "m", "[31m", "\r", "\n", "\t",
    "\x00", "\x7f", "\u202e", "\u2066", "\u200b", "\u200d", "\u00ad", "\ufeff", "\u2028", "\ud800", "\U000e0041", "\ufe0f",
    "é", "漢", "🙂", "a", " ", "[@click=app.quit]", "[/x]", "\x1b[999999999999999999999999999999999999999999999999999999999999m",
]  # fmt: skip
SGR = re.compile(r"\x1b\[[0-9;:]*m")
INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# Visible although of category Cf: Arabic and Kaithi number signs, the Syriac mark.
VISIBLE_CF = re.compile("[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]")


def harmful(text):
    return [
        c for c in text if c != "\t" and unicodedata.category(c) in INVISIBLE and not VISIBLE_CF.match(c)
    ]  # fmt: skip


def inputs(count, seed):
    rng = random.Random(seed)
    for at in range(count):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randrange(12)))
        if at % 2:
            text += "".join(chr(rng.randrange(0x110000)) for _ in range(4))
        yield text


def check(text):
    assert harmful(clean(text)) == []
    assert harmful(SGR.sub("", clean(text, keep_sgr=True))) == []
    assert harmful(strip_unsafe(text)) == []
    raw = text.encode("utf-8", "surrogatepass")
    assert harmful(SGR.sub("", clean(raw, keep_sgr=True))) == []


def test_random_hostile_text():
    for text in inputs(20_000, 20260101):
        check(text)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_million_hostile_texts():
    for text in inputs(1_000_000, 7):
        check(text)


def test_every_character_alone():
    bad = [hex(code) for code in range(0x110000) if harmful(clean(chr(code)))]
    assert bad == []


def test_colours_do_not_run_on():
    assert clean("\x1b[31mred", keep_sgr=True) == "\x1b[31mred\x1b[0m"
    assert clean("plain", keep_sgr=True) == "plain"


@pytest.mark.parametrize("unit", ["a", "é", "漢", "🙂"])
@pytest.mark.parametrize("as_bytes", [False, True])
def test_what_is_cut_says_so(unit, as_bytes):
    text = unit * (LINE_CAP + 3)
    shown = clean(text.encode() if as_bytes else text)
    assert shown == unit * LINE_CAP + "…[+3]"


def test_ids_are_ascii():
    assert ascii_id("pаypal\x1b") == "p\\u0430ypal␛"
    assert ascii_id("a\x1b") == "a␛"
