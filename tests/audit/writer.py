"""A writer for the fault tests: acknowledges each committed row by a line, until its count or its end.

python -m tests.audit.writer LOG COUNT [SEGMENT_BYTES] [SYNCHRONOUS]
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from sandbox_console.audit import reserve, schema
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.model.audit import Outcome


def tell(seq: int) -> None:
    os.write(1, f"{seq}\n".encode())


async def main(path: Path, count: int, segment_bytes: int) -> None:
    journal = await Journal.open(path, "writer", RetentionPolicy(segment_bytes=segment_bytes))
    for number in range(count):
        permit = await journal.begin("exec", "fake", "box", {"n": number})
        tell(permit.audit_id)
        await journal.finish(permit, Outcome.OK, 1, {})
    await journal.close()


def weaken(synchronous: str) -> None:
    """What the log would be without synchronous FULL: the control of the power-cut test."""
    prepare = schema.prepare

    def weak(connection):
        prepare(connection)
        connection.execute(f"PRAGMA synchronous = {synchronous}")

    schema.prepare = weak


if __name__ == "__main__":
    reserve.BYTES = 65536  # 8 MiB of zeros would be most of a trace
    if len(sys.argv) > 4:
        weaken(sys.argv[4])
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 150_000))
