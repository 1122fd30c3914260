"""The shell commands of docs/audit.md, run as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.audit.conftest import act, flip, spoil
from tests.support.require import requires

from sandbox_console.audit import verify
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.keys import Keys
from sandbox_console.audit.layout import Layout

pytestmark = requires("shell-tools")
PAGE = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
CHAIN, OLD_CHAIN, ANCHOR, SIGNATURE, MACS, PAGES, SEALED = re.findall(
    r"```sh\n(.*?)```", PAGE.split("## Verifying by hand")[1], re.DOTALL
)
ODD = 'new\nline "quotes" \\ \x01\x1b[2J grüße 漢字 \U0001f600 \u2028 /slash'


def run(script, folder):
    done = subprocess.run(["bash", "-ec", script], cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.fixture
async def log(tmp_path):
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "user:größe")
    permit = await journal.begin("exec", "fake", ODD, {"argv": [ODD]})
    await journal.finish(permit, "ok", 5, {"text": ODD})
    await act(journal, 5)
    await journal.close()
    return path


async def test_the_chain_is_the_one_that_verify_walks(log):
    assert run(CHAIN, log.parent) == [f"head {(await verify.verify(log)).head}"]


async def test_so_is_the_chain_of_the_old_form(old):
    assert run(OLD_CHAIN, old.parent) == [f"head {(await verify.verify(old)).head}"]
    made, claimed = run(ANCHOR, old.parent)
    assert made.split("= ")[-1] == claimed


async def test_an_edit_and_a_row_taken_out_are_told(log, old):
    for path, chain in ((log, CHAIN), (old, OLD_CHAIN)):
        spoil(path, "UPDATE record SET actor = 'user:nobody' WHERE seq = 4", "DELETE FROM record WHERE seq = 7")
        told = run(chain, path.parent)
        assert [line.partition(":")[0] for line in told[:-1]] == ["edited", "does not follow"]
        assert told[0].startswith("edited: [4,")
        assert told[1].startswith("does not follow: [8,")


async def test_an_anchor_is_signed_as_it_says(log):
    made, claimed = run(ANCHOR, log.parent)
    assert made.split("= ")[-1] == claimed


async def test_its_signature_needs_the_public_key_only(log):
    (log.parent / "audit.pem").write_bytes(Keys(Layout(log).key).public())
    Layout(log).key.unlink()
    assert run(SIGNATURE, log.parent) == ["Signature Verified Successfully"]


async def test_a_row_that_the_key_did_not_make_is_told(log):
    assert run(MACS, log.parent) == []
    spoil(log, "UPDATE record SET mac = x'00' WHERE seq = 4")
    assert run(MACS, log.parent) == ["forged: 4"]


async def test_a_change_of_any_byte_of_the_newest_segment_is_told(several, tmp_path):
    folder = tmp_path / "log"
    shutil.copytree(several, folder)
    mac, claimed, digests, noted = run(PAGES, folder)
    assert (mac, digests) == (claimed, noted)
    newest = Layout(folder / "audit.db").segment(Layout(folder / "audit.db").newest())
    flip(newest, 96)
    flip(newest, 5 * 4096 - 1)
    assert run(PAGES, folder)[4:] == ["changed: 1c1", "changed: 5c5"]


async def test_so_is_one_of_a_sealed_segment(segmented):
    assert run(SEALED, segmented.parent) == []
    flip(segmented, 96)
    assert run(SEALED, segmented.parent) == ["changed: audit.db"]
