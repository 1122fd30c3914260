"""A bundle with 2 GB of log lines: time, size of the file and the highest memory, written and checked.

    python benchmarks/bundle.py [MEGABYTES]

The lines are made here: of a sandbox's log bubblewrap keeps only the newest part.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.service.incident.bundle_file import Lines, Pack
from sandbox_console.service.incident.bundle_parts import log_line
from sandbox_console.service.incident.bundle_reader import check_whole, members

LINE = b"2026-11-22T03:00:00Z INFO request id=%08d path=/v1/items took 12 ms status 200 from 10.0.0.7\n"


def run(megabytes: int, file: Path) -> None:
    block = [LogRecord(1795439976327593918 + at, Stream.STDOUT, LINE % at) for at in range(10_000)]
    size, total = sum(len(one.data) for one in block), 0
    print(f"before              {_memory():6.0f} MiB")
    began = time.monotonic()
    with file.open("wb") as out:
        pack = Pack(out.write)
        lines = Lines(pack, "001-web/logs")
        while total < megabytes * 1_000_000:
            lines.put(map(log_line, block))
            total += size
        lines.flush()
        pack.end()
    took = time.monotonic() - began
    print(f"written    {took:6.0f} s  {_memory():6.0f} MiB  {total / 1e6:.0f} MB in {file.stat().st_size / 1e6:.1f} MB")
    began = time.monotonic()
    with file.open("rb") as bundle:
        whole = check_whole(bundle)
        count = sum(len(block) for member in members(bundle, whole) for block in member.blocks)
    print(f"read       {time.monotonic() - began:6.0f} s  {_memory():6.0f} MiB  {count / 1e6:.0f} MB unpacked")


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        run(int(sys.argv[1]) if sys.argv[1:] else 2000, Path(name) / "bundle.tar.zst")
