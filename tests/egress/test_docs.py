from __future__ import annotations

import re
import time
from pathlib import Path

from msgspec import structs

from sandbox_console.backends.bubblewrap.options import Options as OfBubblewrap
from sandbox_console.backends.docker.gateways import Options as OfDocker
from sandbox_console.egress import http_answers, records
from sandbox_console.model.egress import REASONS
from sandbox_console.service.reads.egress_draft import RULES_MOST, read_draft
from sandbox_console.tui.egress.draft import HOSTS_MOST

TEXT = (Path(__file__).parents[2] / "docs" / "egress.md").read_text()


def test_every_reason_is_told_with_its_meaning_and_status() -> None:
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([^|]+) \| [^|]+ \|$", TEXT, re.MULTILINE))
    assert rows == REASONS
    for reason, status in re.findall(r"^\| `([a-z_]+)` \| [^|]+ \| (\d{3})", TEXT, re.MULTILINE):
        assert http_answers.refusal("box", "h", 1, reason).startswith(f"HTTP/1.1 {status} ".encode()), reason


def test_every_option_is_told_with_its_default() -> None:
    told = dict(re.findall(r"^\| `backends\.([a-z_.]+)` \| `?([^|`]+)`? \|", TEXT, re.MULTILINE))
    known = {f"docker.{item.name}": item.default or "none" for item in structs.fields(OfDocker)}
    known["bubblewrap.egress_hosts"] = OfBubblewrap().egress_hosts or "none"
    assert {key: value.strip() for key, value in told.items()} == known


def test_the_size_of_the_records_is_right() -> None:
    assert f"the newest {records.SIZE * records.KEEP >> 20} MiB are kept" in TEXT


def test_the_bounds_and_the_example_of_a_draft_are_right() -> None:
    words = " ".join(TEXT.split())
    assert f"at most {RULES_MOST} rules" in words
    assert f"the {HOSTS_MOST:,} hosts and ports" in words
    [example] = re.findall(r"```\n(allow .*?)```", TEXT, re.DOTALL)
    assert [line.problem for line in read_draft(example, time.time())] == [""] * 4
