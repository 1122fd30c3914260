"""The filter by text: a summary spares reading, and never changes what is found, whoever wrote to it."""

from __future__ import annotations

import asyncio
import random
import shutil
import threading

import pytest
from tests.audit.conftest import SMALL, spoil

from sandbox_console.audit import query, segment_index
from sandbox_console.audit.anchors import Anchors
from sandbox_console.audit.journal import Journal, summarised
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.reader import ask
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.errors import UsageError
from sandbox_console.model.audit import AuditQuery, Outcome

ALPHABET = [*"abcABCxyz019 /-_%\\'\"*[]", "é", "É", "ß", "\u212a", "k", "漢", "\U0001f600", "\n", "\0", "\ufffd"]


def words(chance, most):
    return "".join(chance.choice(ALPHABET) for _ in range(chance.randint(0, most)))


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A log of several segments with texts of all kinds, in blocks of 16 rows; the texts."""
    folder = tmp_path_factory.mktemp("odd")
    chance, texts = random.Random(11), []

    async def write():
        journal = await Journal.open(folder / "audit.db", "test", RetentionPolicy(segment_bytes=110_000))
        for number in range(350):
            text = words(chance, 12 if number % 50 else 0)
            texts.append(text)
            target, body = (text, {}) if number % 2 else (f"box-{number % 9}", {"argv": [text]})
            permit = await journal.begin(chance.choice(["exec", "stop"]), "fake", target, body)
            await journal.finish(permit, chance.choice(list(Outcome)), 1, {"only": "in the outcome"})
        await journal.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_index, "BLOCK", 16)
        asyncio.run(write())
        yield folder / "audit.db", texts


def needles(chance, texts):
    for _ in range(150):
        text = chance.choice(texts)
        at = chance.randint(0, len(text))
        piece = text[at : at + chance.randint(1, 7)]
        yield chance.choice([piece, piece.swapcase(), words(chance, 5), f"box-{chance.randint(0, 12)}"[-3:]])
    yield from ("only in the", "EXEC", "sto", "\\u00", "%", "_", "\\", "\ud800", "a\0b", "\0")


async def test_what_is_found_is_what_a_plain_scan_finds(odd, tmp_path):
    path, texts = odd
    shutil.copytree(path.parent, tmp_path / "plain")  # copies are other files: no summary counts there
    plain, layout = tmp_path / "plain" / "audit.db", Layout(path)
    sealed = layout.indices()[:-1]
    assert len(sealed) >= 2
    assert all(segment_index.there(layout, index) for index in sealed), "the process that seals a segment summarises it"
    assert not any(segment_index.there(Layout(plain), index) for index in sealed)
    chance, hits, spared = random.Random(12), 0, 0
    for text in needles(chance, texts):
        wanted = AuditQuery(limit=chance.choice([3, 1000]), text=text, outcome=chance.choice(["", "", "ok,failed"]))
        expected = await query.entries(plain, wanted)
        assert await query.entries(path, wanted) == expected, f"{text!r}"
        hits += len(expected)
        spared += sum(segment_index.spans(layout, index, text) == [] for index in sealed)
    assert hits > 300
    assert spared > 40, "whole segments need not be read"


async def found(path, text):
    return [one.attempt.seq for one in await query.entries(path, AuditQuery(limit=1000, text=text))]


def bits_cleared(layout):
    file = layout.summary(1)
    head, _, rest = file.read_bytes().partition(b"\n")
    file.write_bytes(head + b"\n" + bytes(len(rest) - 32) + rest[-32:])


def signed_by_another_key(layout):
    bits_cleared(layout)
    body = layout.summary(1).read_bytes()[:-32]
    other = layout.folder / "other"
    other.mkdir()
    forged = Layout(other / "audit.db")
    Anchors(forged.anchors, forged.key).prepare()
    layout.summary(1).write_bytes(body + segment_index._mac(forged, body))


def row_edited(layout):
    spoil(layout.segment(1), 'UPDATE record SET body = \'{"argv":["box-6"]}\' WHERE seq = 1')


@pytest.mark.parametrize(
    "spoilt",
    [
        bits_cleared,
        signed_by_another_key,
        row_edited,
        lambda layout: shutil.copy(layout.summary(2), layout.summary(1)),
        lambda layout: layout.summary(1).write_bytes(b""),
        lambda layout: layout.summary(1).write_bytes(layout.summary(1).read_bytes()[:-5]),
        lambda layout: layout.summary(1).unlink(),
        lambda layout: layout.key.unlink(),
        lambda layout: layout.segment(1).touch(),
        lambda layout: layout.segment(1).with_name("audit.db-wal").write_bytes(b"rows that wait"),
    ],
    ids=["cleared", "forged", "row edited", "of another", "empty", "cut", "gone", "no key", "touched", "wal"],
)
async def test_a_summary_that_does_not_hold_hides_nothing(segmented, spoilt):
    layout = Layout(segmented)
    assert summarised(layout, [1, 2]) == {1, 2}
    before = await found(segmented, "BOX-6")
    spoilt(layout)
    assert not segment_index.there(layout, 1)
    after = await found(segmented, "BOX-6")
    assert after == ([*before, 1] if spoilt is row_edited else before)
    assert len(before) == 57


async def test_only_a_sealed_segment_is_summarised_and_retention_takes_its_summary(segmented):
    layout = Layout(segmented)
    assert not segment_index.build(layout, layout.newest())
    assert summarised(layout, layout.indices()) == set(layout.indices()[:-1])
    journal = await Journal.open(segmented, "test", RetentionPolicy(segment_bytes=SMALL.segment_bytes, segments=2))
    for _ in range(300):
        await journal.refuse("exec", "fake", "box", {}, Outcome.DENIED, {})
    await journal.close()
    there = {layout.summary(index) for index in layout.indices()[:-1]}
    assert set(layout.folder.glob("*.grams")) == there
    assert len(there) == 1


async def test_a_query_that_nobody_waits_for_ends(segmented):
    begun = threading.Event()

    def endless(db):
        begun.set()
        db.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n").fetchone()

    task = asyncio.create_task(ask(segmented, endless))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)


async def test_a_text_too_long_to_look_for_is_refused(segmented):
    with pytest.raises(UsageError, match="characters"):
        await query.entries(segmented, AuditQuery(text="x" * 60_000))
