"""Output on a terminal, and the objects of ``--json``."""

from __future__ import annotations

import json

import pytest

from sandbox_console.cli import json_output
from sandbox_console.cli.exec import LineCleaner
from sandbox_console.cli.formatting import duration, moment, moment_ns, size, table, width


def shown(*chunks: bytes, keep_sgr: bool = True) -> str:
    cleaner = LineCleaner(keep_sgr=keep_sgr)
    return b"".join([*(cleaner.feed(chunk) for chunk in chunks), cleaner.flush()]).decode()


def test_lines_stay_lines_and_acting_bytes_become_visible() -> None:
    assert shown(b"a\r\nb\n\x1b]0;x\x07c\td") == "a\nb\n␛]0;x␇c\td"


def test_a_colour_split_between_chunks_stays_a_colour() -> None:
    assert "\x1b[31mred" in shown(b"\x1b[3", b"1mred\n")


def test_without_colours_they_are_visible_too() -> None:
    assert "\x1b" not in shown(b"\x1b[31mred\n", keep_sgr=False)


def test_a_character_split_between_chunks_stays_one() -> None:
    assert shown("\u6f22".encode()[:2], "\u6f22".encode()[2:]) == "\u6f22"


def test_a_half_line_is_shown_before_its_end() -> None:
    assert LineCleaner(keep_sgr=True).feed(b"Password: ") == b"Password: "


def test_a_lone_escape_at_the_end_is_not_lost() -> None:
    assert shown(b"x\x1b") == "x␛"


@pytest.mark.parametrize("value", [b"plain", "\u202e\u00e9".encode(), b"\xff\x00\xfe", b"", b"\x7f\x1b"])
def test_bytes_come_back_from_json_as_they_were(value: bytes) -> None:
    text = json_output.line(json_output.payload(value))
    assert text.isascii()
    assert text.isprintable()
    import base64

    back = json.loads(text)
    assert (back["data"].encode() if "data" in back else base64.b64decode(back["data_b64"])) == value


@pytest.mark.parametrize(
    ("given", "whole", "held"),
    [
        (b"abc", b"abc", b""),
        ("\u6f22".encode(), "\u6f22".encode(), b""),
        (b"a" + "\u6f22".encode()[:1], b"a", b"\xe6"),
        (b"a" + "\U0001f600".encode()[:3], b"a", "\U0001f600".encode()[:3]),
        (b"\xff", b"\xff", b""),
    ],
)
def test_a_chunk_is_split_at_whole_characters(given: bytes, whole: bytes, held: bytes) -> None:
    assert json_output.whole_characters(given) == (whole, held)


def test_columns_line_up_whatever_they_hold() -> None:
    lines = table(("NAME", "X"), [("\u6f22\u5b57", "1"), ("e\u0301", "2"), ("plain", "3"), ("a\x1b[1mb", "4")])
    assert {width(line[: line.rindex(line[-1])]) for line in lines} == {width("a␛[1mb  ")}
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d"), (-5, "0s")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_times_and_sizes() -> None:
    assert moment(0) == "1970-01-01T00:00:00Z"
    assert moment(None) == "-"
    assert moment_ns(1_700_000_000_123_456_789) == "2023-11-14T22:13:20.123456Z"
    assert [size(n) for n in (None, 0, 1023, 1536, 3 * 1024**3)] == ["-", "0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
