"""The log for others: verifiable lines, valid OCSF events, cells that no spreadsheet runs."""

from __future__ import annotations

import asyncio
import csv
import hashlib
import io
import json
import os
import random
import subprocess
import sys

import pytest
from jsonschema import Draft202012Validator
from ocsf_json_schema import OcsfJsonSchemaEmbedded, get_ocsf_schema
from tests.audit.conftest import act

from sandbox_console.audit import csv_rows, export, ocsf, stats
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.rows import body_data as told_by
from sandbox_console.errors import UsageError
from sandbox_console.model.audit import AuditSelection, Outcome

HOSTILE = '=HYPERLINK("x")\x1b]0;t\x07\n"quote",\u202e'


@pytest.fixture
async def log(tmp_path):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "user:=1+1")
    await act(journal, 5)
    refused = await journal.refuse(
        "create", "docker", HOSTILE, {"origin": {"host": "h"}}, Outcome.DENIED, {"error": "no"}
    )
    permit = await journal.begin("shell", "fake", "@SUM(A1)", {"origin": {"host": "h"}})
    await journal.finish(permit, Outcome.OK, 1500, {"opened": True}, target="@SUM(A1)")
    await journal.note(permit, "fake", "-2+3", {"bytes": 1})
    await journal.close()
    assert refused
    return path


async def whole(path, form, **select):
    return b"".join([block async for block in export.export(path, form, AuditSelection(**select))])


async def test_json_lines_are_the_rows_and_verify_by_themselves(log):
    rows = [json.loads(line) for line in (await whole(log, "jsonl")).splitlines()]
    assert [row["seq"] for row in rows] == list(range(1, 16))
    prev = None
    for row in rows:
        assert prev in (None, row["prev"])
        body = json.dumps(row["body"], ensure_ascii=True, separators=(",", ":"), sort_keys=True)
        columns = [row[name] for name in row if name not in ("body", "prev", "hash")] + [body]
        text = json.dumps(columns, ensure_ascii=False, separators=(",", ":"))
        hashed = hashlib.sha256(b"sandbox-console/audit/row/2\n" + text.encode()).digest()
        made = hashlib.sha256(b"sandbox-console/audit/link/2\n" + bytes.fromhex(row["prev"]) + hashed).hexdigest()
        assert made == row["hash"]
        prev = made
    assert rows[10]["target"] == HOSTILE


async def test_every_event_is_valid_ocsf(log):
    schema = OcsfJsonSchemaEmbedded(get_ocsf_schema("1.8.0")).get_class_schema("api_activity")
    check = Draft202012Validator(schema)
    events = [json.loads(line) for line in (await whole(log, "ocsf")).splitlines()]
    assert len(events) == 15
    for event in events:
        assert [error.message for error in check.iter_errors(event)] == []
    denied = next(event for event in events if event.get("status_detail") == "denied")
    assert (denied["status"], denied["severity_id"], denied["message"]) == ("Failure", 3, "no")
    assert not check.is_valid({**events[0], "severity_id": "high"})


BODIES = (
    "{}", '{"origin":{"host":"h%s","uid":0}}', '{"origin":{"host":"\\u00e9\\ud83d\\ude00"},"error":"no \\"%d\\" \\u001b"}',
    '{"error":null}', '{"error":{"a":[1.5]}}', '{"origin":5}', '{"origin":{"host":0}}', '{"error":"\\ud800"}',
    # As only an edited row has them:
    "", "[]", "no JSON", '{"a": 1}', '{"a":\n1}', '{"a":"é"}', '{"a":"\x7f"}', '{"a":NaN}', '{"a":01}', '{"a":1,"a":2}',
    '{"a":' + "[" * 90_000 + "]" * 90_000 + "}",
)  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
def test_an_events_line_is_what_its_fields_say(body):
    """The line is put together of pieces: whatever stands in a row, it is the event, and one line."""
    odd = ("exec", "", "%s%%d", '"ref":null', '"request":{"uid":"0"}', HOSTILE, "é\ud83d")
    for text in odd:
        for outcome, target, ref, took in (("", "", None, None), ("ok", text, 7, 0), (text, "x", 2**62, 1999)):
            row = (2**62, 1_700_000_000_123_456_789, "note", ref, text, text, text and "r" + text, text, text, target,
                   outcome, took, body, b"\x00\xff", b"")  # fmt: skip
            line = ocsf.lines([row, row]).decode("ascii")
            assert line.count("\n") == 2
            assert [json.loads(one) for one in line.splitlines()] == [json.loads(json.dumps(ocsf.event(row)))] * 2 or (
                "NaN" in body and line == 2 * (ocsf._encode(ocsf.event(row)) + "\n")
            )
    if body == BODIES[1]:
        assert line == 2 * (json.dumps(ocsf.event(row), separators=(",", ":")) + "\n"), "byte by byte, as it is written"


PIECES = ("=cmd|x", "+1", "-2", "@SUM", "\t", "\r", "\n", "\r\n", '"', '""', ",", "'", "\0", " ", "é", "\u2028", "\U0001f600",
          '{"a":"b"}', "{}", "{", "x" * 5000)  # fmt: skip


def hostile(chance):
    def text():
        return "".join(chance.choices(PIECES, k=chance.choice([0, 1, 1, 2, 5])))

    body = chance.choice([text(), "{}", json.dumps({text(): [text(), 1.5, None]}), '{"a":"' + text() + '"}'])
    return (chance.randint(1, 2**62), chance.randint(0, 2**62), text(), chance.choice([None, 7]), *(text() for _ in range(7)),
            chance.choice([None, 0, 5]), body, chance.randbytes(32), b"")  # fmt: skip


def plainly(rows):
    """As the csv module writes them."""
    held = io.StringIO(newline="")
    for row in rows:
        csv.writer(held).writerow(
            "'" + one
            if isinstance(one, str) and one[:1] and one[0] in "=+-@\t\r"
            else one.hex()
            if isinstance(one, bytes)
            else one
            for one in row
        )
    return held.getvalue().encode()


def test_lines_and_cells_say_what_stands_in_the_row_whatever_it_is():
    chance = random.Random(5)
    for size in (0, 1, 2, *(30,) * 60):
        rows = [hostile(chance) for _ in range(size)]
        if size == 2:  # types that only a hand on the file gives
            rows[0] = ("=1+1", 1.5, b"=x", "=2", *rows[0][4:11], "=3", b"\xff", "=4", None)
        assert csv_rows.lines(rows) == plainly(rows)
        lines = export._jsonl(rows).decode().split("\n")[:-1]
        assert len(lines) == size
        for row, line in zip(rows, lines, strict=True):
            told = json.loads(line)
            shown = [one.hex() if isinstance(one, bytes) else one for one in row]
            if told["body"] != shown[12]:
                shown[12] = told_by(shown[12])
            assert list(told.values()) == shown
        assert len(ocsf.lines(rows).splitlines()) == size


async def test_no_cell_begins_a_formula(log):
    rows = list(csv.reader(io.StringIO((await whole(log, "csv")).decode(), newline="")))
    assert len(rows) == 16
    assert all(not cell.startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows for cell in row)
    assert rows[11][9] == "'" + HOSTILE
    assert "'@SUM(A1)" in rows[13]


async def test_a_span_of_rows(log, segmented):
    assert (await whole(log, "jsonl", after_seq=13)).count(b"\n") == 2
    assert (await whole(log, "jsonl", until=1.0)) == b""
    lines = (await whole(segmented, "jsonl")).splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1)), "over segments, without a gap"


async def test_an_unknown_format_names_the_known_ones(log):
    with pytest.raises(UsageError) as caught:
        await whole(log, "xml")
    assert "jsonl" in caught.value.hint


async def test_counts(log, segmented):
    found = await stats.stats(log)
    assert (found.rows, found.segments) == (15, 1)
    assert (found.outcomes["denied"], found.actions["shell"], found.backends["fake"]) == (1, 1, 6)
    assert (await stats.stats(segmented)).actions["exec"] == 400


@pytest.mark.parametrize("form", ["jsonl", "ocsf", "csv"])
@pytest.mark.parametrize(("output", "code"), [("| head -n 1", 141), ("> /dev/full", 1)], ids=["head", "full"])
async def test_an_export_whose_reader_goes_or_whose_disk_is_full_ends_cleanly(tmp_path, form, output, code):
    """More than a pipe holds, so that it goes while rows are still to come."""
    path = tmp_path / "state" / "audit" / "audit.db"
    journal = await Journal.open(path, "test")
    for _ in range(150):
        await journal.refuse("exec", "fake", "box", {"text": "x" * 2000}, Outcome.DENIED, {})
    await journal.close()
    env = os.environ | {"SANDBOX_CONSOLE_HOME": str(tmp_path)}
    script = f"{sys.executable} -m sandbox_console audit export --format {form} {output}; exit ${{PIPESTATUS[0]}}"
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-c", script], env=env, capture_output=True, text=True, check=False
    )
    said = ["error: the output cannot be written: No space left on device"] if code == 1 else []
    assert (done.returncode, done.stderr.splitlines()) == (code, said)
