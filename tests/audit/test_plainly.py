"""Whatever is asked for, what is found is what a plain loop over all rows finds."""

from __future__ import annotations

import asyncio
import json
import random
from collections import defaultdict

import pytest
from msgspec import structs

from sandbox_console.audit import export, query, segment_index
from sandbox_console.audit.journal import Journal, summarised
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.model.audit import AuditQuery, AuditSelection, Outcome

ACTIONS, BACKENDS = ("create", "exec", "shell"), ("docker", "fake")


async def write(path, chance):
    """By two consoles at once; much is ended segments later, noted twice, or never ended."""
    keep = RetentionPolicy(segment_bytes=90_000)
    journals = [await Journal.open(path, f"user:{name}", keep) for name in "ab"]
    flying = []
    for number in range(350):
        journal, target = chance.choice(journals), f"box-{chance.randint(0, 9)}"
        permit = await journal.begin(
            chance.choice(ACTIONS), chance.choice(BACKENDS), target, {"argv": [f"rare{number}" if number % 40 == 0 else "x%_y"]}
        )  # fmt: skip
        flying.append((journal, permit, target))
        while len(flying) > (40 if number < 310 else 5):
            journal, permit, target = flying.pop(chance.choice([0, 0, -1]))
            made = chance.choice(["", "", f"made-{chance.randint(0, 9)}"])
            await journal.finish(permit, chance.choice(list(Outcome)), 1, {}, target=made)
            for _ in range(chance.choice([0, 0, 1, 2])):
                await journal.note(permit, "fake", target, {"bytes": 1})
    for journal in journals:
        await journal.close()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "audit.db"

    async def rows():
        return b"".join([block async for block in export.export(path, "jsonl", AuditSelection())])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_index, "BLOCK", 16)
        asyncio.run(write(path, random.Random(3)))
        layout = Layout(path)
        sealed = layout.indices()[:-1]
        assert summarised(layout, sealed) == set(sealed)
        assert len(sealed) >= 2
        yield path, [json.loads(line) for line in asyncio.run(rows()).splitlines()]


def plainly(rows, query):
    belonging = defaultdict(list)
    for row in rows:
        belonging[row["ref"]].append(row)

    def fits(one):
        ends = [row for row in belonging[one["seq"]] if row["kind"] in ("outcome", "unknown")]
        text = json.dumps([one["target"], one["action"]]) + json.dumps(one["body"], separators=(",", ":"))
        return (
            one["kind"] == "attempt"
            and (not query.target or query.target in [one["target"], *(end["target"] for end in ends)])
            and all(getattr(query, name) in ("", one[name]) for name in ("action", "backend", "actor"))
            and (not query.outcome or any(end["outcome"] in query.outcome.split(",") for end in ends))
            and query.text.lower() in text.lower()
            and (query.since is None or one["ts_ns"] >= int(query.since * 1e9))
            and (query.until is None or one["ts_ns"] < int(query.until * 1e9))
            and (query.before_seq is None or one["seq"] < query.before_seq)
        )

    found = [one for one in reversed(rows) if fits(one)][: query.limit]
    return [(one["seq"], [row["seq"] for row in belonging[one["seq"]]]) for one in found]


def asked(chance, rows):
    """Any of the filters, by chance, alone and together."""
    moment = lambda: chance.choice(rows)["ts_ns"] / 1e9 + chance.choice([0, 0, -1e9, 1e-6])  # noqa: E731
    some = {
        "target": lambda: chance.choice(["box-3", "box-7", "made-4", "box-nobody"]),
        "action": lambda: chance.choice([*ACTIONS, "stop"]),
        "backend": lambda: chance.choice(BACKENDS),
        "actor": lambda: chance.choice(["user:a", "user:b", "user:c"]),
        "outcome": lambda: ",".join(chance.choices([*Outcome], k=chance.choice([1, 2]))) + chance.choice(["", ","]),
        "text": lambda: chance.choice(["rare", f"RARE{chance.randrange(13) * 40}", "box-1", "%_", "xe", "zq", "ec", "_"]),
        "since": moment,
        "until": moment,
        "before_seq": lambda: chance.randint(0, len(rows) + 5),
    }  # fmt: skip
    names = chance.sample(list(some), chance.choice([0, 1, 1, 2, 2, 3]))
    return AuditQuery(limit=chance.choice([1, 7, 50, 5000]), **{name: some[name]() for name in names})


async def test_any_filters_find_what_a_plain_loop_finds(log, monkeypatch):
    path, rows = log
    chance, hits = random.Random(4), 0
    for number in range(120):
        wanted = asked(chance, rows)
        # What few ended with is listed, what many ended with is looked for: both ways.
        monkeypatch.setattr(query, "_RARE", 5 if number % 2 else 5000)
        expected = plainly(rows, wanted)
        found = await query.entries(path, wanted)
        told = [(one.attempt.seq, sorted(row.seq for row in (one.end, *one.notes) if row)) for one in found]
        assert told == expected, wanted
        assert all([note.seq for note in one.notes] == sorted(note.seq for note in one.notes) for one in found)
        hits += len(found)
    assert hits > 1000
    pages, page = [], AuditQuery(limit=17, text="x", action="exec")
    while some := await query.entries(path, page):
        pages += [one.attempt.seq for one in some]
        page = structs.replace(page, before_seq=pages[-1])
    assert pages == [seq for seq, _ in plainly(rows, structs.replace(page, limit=5000, before_seq=None))]
