"""Recordings of an hour: when the player has its keyframes, what a jump takes, and what a search over several takes."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from sandbox_console.recording.cast import lines, read_events
from sandbox_console.tui.recordings.playback import Playback
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

HOUR_S = 3600.0


def write(path: Path, mib: int) -> None:
    """An hour of coloured lines, cursor moves and clears, at even distances."""
    chance = random.Random(7)
    count = mib * 1024
    with path.open("w") as file:
        file.write(json.dumps({"version": 2, "width": 120, "height": 40, "timestamp": 1_700_000_000}) + "\n")
        for at in range(count):
            words = " ".join(f"\x1b[3{chance.randrange(8)}mword{chance.randrange(999)}\x1b[0m" for _ in range(45))
            text = f"{at} needle\r\n" if at % 5000 == 99 else f"\x1b[{at % 40 + 1}H{at} {words}\r\n"
            file.write(json.dumps([round(HOUR_S * at / count, 6), "o", text]) + "\n")


async def jumps(path: Path, count: int) -> None:
    playback = Playback(path, GhosttyEmulator)
    await playback.open()
    began = time.perf_counter()
    await playback.index()
    print(f"  keyframes {time.perf_counter() - began:6.2f} s")
    chance, took = random.Random(3), []
    for _ in range(count):
        began = time.perf_counter()
        await playback.seek(chance.uniform(0, HOUR_S))
        took.append(time.perf_counter() - began)
    took.sort()
    print(f"  jump      median {took[count // 2] * 1000:.0f} ms, worst {took[-1] * 1000:.0f} ms of {count}")
    playback.close()


def search(path: Path) -> None:
    began = time.perf_counter()
    found = [line.began for line in lines(read_events(path)) if "needle" in line.text.casefold()]
    print(f"  search    {time.perf_counter() - began:6.2f} s, {len(found)} hits, the first at {found[0]:.1f} s")


def main() -> None:
    """``recordings.py [MIB...]``: by default 8 and 64, the largest that is recorded."""
    for mib in map(int, sys.argv[1:] or ("8", "64")):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "hour.cast"
            write(path, mib)
            print(f"an hour in {path.stat().st_size / 1048576:.0f} MiB")
            asyncio.run(jumps(path, 20))
            search(path)


if __name__ == "__main__":
    main()
