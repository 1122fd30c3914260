"""The file of a recording: what goes in comes out, and nothing that is secret stays in it."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_console.recording.cast import Pending, lines, plain, read_events, read_header
from sandbox_console.recording.writer import Writer
from sandbox_console.secrets.redactor import Redactor

SECRET = "correct-horse-battery"


@pytest.fixture
def writer(tmp_path):
    return Writer(tmp_path / "recordings" / "one.cast", {"width": 80, "height": 24}, 10_000)


def as_it_is(parts, sizes=()):
    return parts


async def test_what_is_shown_is_in_the_file_with_its_hash(writer):
    await writer.begin()
    await writer.output("grü".encode()[:3])
    await writer.output("grü".encode()[3:] + b"\xff\x1b[31mred\r\n")
    writer.resize(100, 40)
    told = await writer.end(as_it_is)
    assert read_header(writer.path)["version"] == 2
    assert [(kind, text) for _, kind, text in read_events(writer.path)] == [
        ("o", "gr"), ("o", "ü\ufffd\x1b[31mred\r\n"), ("r", "100x40"),
    ]  # fmt: skip
    assert told.sha256 == hashlib.sha256(writer.path.read_bytes()).hexdigest()
    assert writer.path.read_bytes().decode("ascii").replace("\n", "").isprintable()
    assert (told.id, told.size_bytes, told.cut) == ("one", writer.path.stat().st_size, False)
    assert writer.path.stat().st_mode & 0o777 == 0o600
    assert writer.path.parent.stat().st_mode & 0o777 == 0o700


async def test_a_secret_typed_a_character_at_a_time_is_masked_at_the_end(writer):
    await writer.begin()
    for char in f"$ export T={SECRET}\r\nmore {SECRET}":
        await writer.output(char.encode())
    told = await writer.end(Redactor([SECRET]).across)
    text = "".join(text for _, _, text in read_events(writer.path))
    assert text == "$ export T=[secret]\r\nmore [secret]"
    assert SECRET not in writer.path.read_text()
    assert told.sha256 == hashlib.sha256(writer.path.read_bytes()).hexdigest()
    assert writer.path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in writer.path.parent.iterdir()] == ["one.cast"]


@pytest.mark.parametrize("moved", [b"\x1b[3;9H", b"\x1b[1;1H\x1b[2B\x1b[8C"])
async def test_a_secret_that_is_drawn_by_cursor_moves_is_masked_at_the_end(writer, moved):
    await writer.begin()
    for data in (b"\x1b[?1049h", b"\x1b[3;1Hcorrect-", b"\x1b[1;1Hx", moved, b"horse-battery", b"\x1b[20;1H"):
        await writer.output(data)
    writer.resize(100, 40)
    await writer.output(b"bye")
    await writer.end(Redactor([SECRET]).across)
    text = "".join(text for _, kind, text in read_events(writer.path) if kind == "o")
    assert text.endswith(moved.decode() + "*************\x1b[20;1Hbye")


async def test_a_flood_ends_at_the_cap_and_says_so(writer):
    await writer.begin()
    for _ in range(30):
        await writer.output(b"x" * 1000)
    told = await writer.end(as_it_is)
    assert told.cut
    *_, (_, kind, text) = read_events(writer.path)
    assert kind == "m"
    assert "recording.max_mib" in text
    assert writer.path.stat().st_size < 12_000


def test_what_is_printed_at_once_is_kept_up_to_the_cap():
    pending = Pending(10)
    pending.output(b"x" * 20)
    pending.output(b"y")
    events = [json.loads(line)[1:] for line in pending.take().splitlines()]
    assert events == [["o", "x" * 10], ["m", "the recording ends here: it reached recording.max_mib"]]
    assert pending.cut


async def test_a_line_that_a_kill_cut_short_ends_it(writer):
    await writer.begin()
    await writer.output(b"whole")
    await writer.end(as_it_is)
    with writer.path.open("a") as file:
        file.write('[1.5, "o", "hal')
    assert [text for _, _, text in read_events(writer.path)] == ["whole"]


async def test_what_cannot_be_written_is_told_once(tmp_path):
    writer = Writer(tmp_path / "one.cast", {}, 10_000_000)
    await writer.begin()
    writer.path.unlink()
    writer.path.mkdir()
    with pytest.raises(OSError):
        await writer.output(b"x" * 300_000)
    assert writer.problem
    told = await writer.end(as_it_is)
    assert (told.sha256, told.size_bytes) == ("", 0)
    assert told.problem


def test_lines_are_what_a_person_read():
    events = [
        (0.0, "o", "$ ls\r\n\x1b[1;31mred\x1b[0m gr"),
        (1.0, "r", "90x30"),
        (2.0, "o", "een\r\n"),
        (3.0, "o", "10%\r20%\rdone"),
    ]
    assert list(lines(events)) == [(0.0, 0.0, "$ ls"), (0.0, 2.0, "red green"), (3.0, 3.0, "done")]
    assert plain("wrongg\b \b right\x1b]0;title\x07") == "wrong right"


@given(st.lists(st.text(max_size=20), max_size=20))
def test_no_text_is_too_odd(parts):
    told = [line.text for line in lines([(0.0, "o", part) for part in parts])]
    assert not any("\n" in line for line in told)
    assert sum(map(len, told)) <= sum(map(len, parts))


@given(st.data())
def test_a_value_is_masked_wherever_it_is_split(data):
    text = "".join(data.draw(st.lists(st.sampled_from([SECRET, "a", "ü", "correct-", "\n"]), max_size=12)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=10)))
    parts = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    found = Redactor([SECRET]).across(parts)
    assert len(found) == len(parts)
    assert "".join(found) == Redactor([SECRET]).text(text)
    assert json.dumps(found)
