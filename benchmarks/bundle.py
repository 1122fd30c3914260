"""A bundle of a sandbox with 2 GB of logs: time, size of the file and the memory of the process.

python benchmarks/bundle.py [MEGABYTES]
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from sandbox_console.model import action
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, make_bundle, open_console, verify_bundle

LINE = "2026-11-22T03:00:00Z INFO request id=%08d path=/v1/items took 12 ms status 200 bytes 5120 from 10.0.0.7"


async def run(megabytes: int, folder: Path) -> None:
    count = megabytes * 1_000_000 // (len(LINE % 0) + 1)
    script = f"seq -f '{LINE.replace('%08d', '%08.0f')}' {count}"
    async with open_console(Config(), only_backend="bubblewrap") as console:
        [place] = console.places
        spec = SandboxSpec("flood", "host", ("sh", "-c", script))
        ref = (await console.perform(action.Create(spec, *place)).result()).ref
        assert ref is not None
        while (found := await console.inspect(ref)).status.live:
            await asyncio.sleep(0.5)
        file = folder / "flood.tar.zst"
        print(f"memory before      {_memory():8.0f} MiB")
        began = time.monotonic()
        with file.open("wb") as out:
            made = await make_bundle(console, [found], out.write, until=time.time())
        took = time.monotonic() - began
        logs = sum(part.bytes for part in made.manifest.parts if "/logs-" in part.name)
        print(
            f"written in         {took:8.1f} s   {logs / 1e6:.0f} MB of log lines, {file.stat().st_size / 1e6:.1f} MB"
        )
        print(f"highest memory     {_memory():8.0f} MiB")
        began = time.monotonic()
        with file.open("rb") as bundle:
            checked = verify_bundle(bundle)
        print(f"verified in        {time.monotonic() - began:8.1f} s   ok: {checked.ok}")
        print(f"highest memory     {_memory():8.0f} MiB")
        await console.perform(action.Remove(ref, force=True), consent=Consent(yes=True, confirm=ref.id)).result()


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        os.environ["SANDBOX_CONSOLE_HOME"] = f"{name}/home"
        asyncio.run(run(int(sys.argv[1]) if sys.argv[1:] else 2000, Path(name)))
