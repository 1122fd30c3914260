"""How fast output is masked, in MB/s: plain lines, lines with colours or a cursor that goes back, and whole screens.

``python benchmarks/redactor.py [BASE]`` compares in interleaved pairs with the sources in BASE/src.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS, SECONDS = 15, 0.15
PLAIN = b"2026-01-01 GET /api/items/42 200 OK took 13 ms, user alice from host example.org\n" * 800
KINDS = {
    "plain": PLAIN,
    "plain, CRLF": PLAIN.replace(b"\n", b"\r\n"),
    "UTF-8": PLAIN.replace(b"alice", "J\u00f6rg".encode()),
    "colours": PLAIN.replace(b"200 OK", b"\x1b[32m200 OK\x1b[0m"),
    "progress": b"".join(b"\r%3d %% [%-40s]" % (at, b"#" * (at * 2 // 5)) for at in range(100)) + b"\n",
    "screen": b"\x1b[?1049h" + b"".join(b"\x1b[%d;1H%s\x1b[K" % (at % 24 + 1, PLAIN[:76]) for at in range(200)),
    "moves": b"".join(b"\x1b[3A\x1b[%dG%s\x1b[3B" % (at % 40 + 1, PLAIN[at : at + 30]) for at in range(200)),
}


def measure() -> None:
    """One line a case: the kind, the number of values, MB/s."""
    from sandbox_console.secrets.redactor import Redactor

    try:
        from sandbox_console.secrets.stream_redactor import StreamRedactor
    except ImportError:  # the sources that are compared may have it elsewhere
        from sandbox_console.secrets.redactor import StreamRedactor

    letters = random.Random(1)
    for count in (1, 5, 20):
        values = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyzABCDEFGH0123456789", k=40)) for _ in range(count)]
        for kind, data in KINDS.items():
            stream = StreamRedactor(Redactor(values))
            done, began = 0, time.perf_counter()
            while time.perf_counter() - began < SECONDS:
                stream.feed(data)
                done += len(data)
            sys.stdout.write(f"{kind}|{count}|{done / (time.perf_counter() - began) / 1e6}\n")


def main() -> None:
    """Print a table."""
    if sys.argv[1:] == ["--one"]:
        measure()
        return
    here = Path(__file__).resolve().parents[1]
    trees = {"now": here} | ({"base": Path(sys.argv[1])} if sys.argv[1:] else {})
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for _ in range(ROUNDS):
        for name, tree in trees.items():
            words = [sys.executable, __file__, "--one"]
            said = subprocess.run(
                words, env={"PYTHONPATH": str(tree / "src")}, capture_output=True, text=True, check=True
            )
            for line in said.stdout.splitlines():
                kind, count, speed = line.split("|")
                found.setdefault((kind, count), {}).setdefault(name, []).append(float(speed))
    for (kind, count), speeds in found.items():
        medians = {name: statistics.median(all_) for name, all_ in speeds.items()}
        ratio = statistics.median(n / b for n, b in zip(speeds["now"], speeds.get("base", speeds["now"]), strict=True))
        told = "  ".join(f"{name} {value:8.0f}" for name, value in medians.items())
        sys.stdout.write(f"{kind:12} {count:>3} values  {told} MB/s  now/base {ratio:.2f}\n")


if __name__ == "__main__":
    main()
