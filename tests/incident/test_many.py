"""Many at once: one list for all, one that hangs holds up no other, and a long log takes no more memory."""

from __future__ import annotations

import asyncio
import io
import json
import tracemalloc
from pathlib import Path

import pytest
from tests.library.conftest import home

from sandbox_console.cli import parser
from sandbox_console.cli.context import Sink, Streams
from sandbox_console.cli.run import run
from sandbox_console.model.action import Permit
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, open_console
from sandbox_console.service.effects import quarantine
from sandbox_console.service.incident.bundle_file import PART_BYTES, Lines, Pack
from sandbox_console.service.incident.bundle_parts import log_line
from sandbox_console.testing.fake_backend import FakeBackend

__all__ = ["home"]
COUNT, HANGS = 1000, {"id007", "id042"}


class Counted(FakeBackend):
    """Counts its lists; some of its sandboxes are never paused."""

    lists = 0

    async def list(self) -> list[Sandbox]:
        self.lists += 1
        return await super().list()

    async def pause(self, permit: Permit, ref: SandboxRef) -> None:
        if ref.id in HANGS:
            await asyncio.Event().wait()
        await super().pause(permit, ref)


def fleet() -> Counted:
    labels = {"team": "red"}
    return Counted(sandboxes=[
        Sandbox(SandboxRef("fake", "local", f"id{at:03d}"), f"box{at:03d}", Status.RUNNING, labels=labels,
                spec=SandboxSpec(f"box{at:03d}", labels=labels))
        for at in range(COUNT)
    ])  # fmt: skip


def test_one_list_for_all_and_one_that_hangs_holds_up_no_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "STEP_S", 4.0)
    backend, out, err = fleet(), io.BytesIO(), io.BytesIO()

    def asked(*words: str) -> tuple[int, list[dict]]:
        out.seek(0)
        out.truncate()
        streams = Streams(Sink(out, tty=False), Sink(err, tty=False))
        code = run(
            parser.parse(["--json", "--yes", "quarantine", *words]),
            opener=lambda **_: open_console(Config(), backends=[backend]),
            streams=streams,
        )
        return code, [json.loads(line) for line in out.getvalue().splitlines()]

    code, told = asked("--label", "team=red", "--dry-run")
    assert (code, len(told), backend.lists) == (0, COUNT, 1)
    assert {one.status for one in backend.sandboxes.values()} == {Status.RUNNING}
    code, told = asked("--label", "team=red", "--no-evidence")
    assert (code, len(told), backend.lists) == (1, COUNT, 2)
    frozen = {one["ref"].rpartition("/")[2] for one in told if all(step["done"] for step in one["steps"])}
    assert len(frozen) == COUNT - len(HANGS)
    assert not frozen & HANGS
    assert {one.status for one in backend.sandboxes.values() if one.ref.id not in HANGS} == {Status.PAUSED}
    [why] = {step["note"] for one in told for step in one["steps"] if not step["done"]}
    assert why == "no answer within 4 s"
    code, told = asked("--label", "team=red", "--undo")
    assert (code, len(told), backend.lists) == (0, COUNT, 3)


def test_a_long_log_takes_no_more_memory() -> None:
    written = 0

    def write(data: bytes) -> None:
        nonlocal written
        written += len(data)

    pack = Pack(write)
    lines = Lines(pack, "001-web/logs")
    block = [LogRecord(at, Stream.STDOUT, b"%06d a line of a log that does not end\n" % at * 20) for at in range(1000)]
    tracemalloc.start()
    while len(pack.parts) < 6:
        lines.put(map(log_line, block))
    lines.flush()
    pack.end()
    assert tracemalloc.get_traced_memory()[1] < 4 * PART_BYTES
    tracemalloc.stop()
    assert written
