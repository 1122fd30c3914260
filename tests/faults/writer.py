"""One of several processes that write to the same audit log: N attempts with their outcomes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sandbox_console.audit.journal import Journal
from sandbox_console.model.audit import Outcome


async def main(path: Path, count: int) -> None:
    journal = await Journal.open(path, actor="writer")
    for number in range(count):
        permit = await journal.begin("exec", "fake", "box", {"n": number})
        await journal.finish(permit, Outcome.OK, 1, {})
        sys.stdout.write(f"{permit.audit_id}\n")
    await journal.close()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
