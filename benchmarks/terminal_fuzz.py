"""Hostile output at both of the terminal's doors: the app's emulator, and the filter of ``shell`` on a real terminal.

Run it with ``python benchmarks/terminal_fuzz.py [MB] [SEED]``. It prints how much went through without a crash and
without a byte that acts on the outer terminal, and exits with 1 at the first that does.
"""

from __future__ import annotations

import random
import re
import sys
import time

from textual.color import Color
from textual.filter import LineFilter

from sandbox_console.cli.terminal_filter import ScreenFilter
from sandbox_console.tui.base.safety import StripControls
from sandbox_console.tui.widgets.terminal.emulator import CHUNK
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

BLACK = Color(0, 0, 0)
KINDS = (
    b"\x1b[", b"\x1b]", b"\x1bP", b"\x1b_", b"\x1b^", b"\x1bX", b"\x9b", b"\x9d", b"\xc2\x9b", b"\xc2\x9d", b"\x1b",
    b"\x1b[?", b"\x1b[>", b"\x1b]52;c;", b"\x1b]8;;", b"\x1b[6n", b"\x1bc", b"\x1b#8", b"\x1b(0", b"\x1b[?1049h",
    b"\x1b[8;1;1t", b"\x1b[5i", b"\x1b\\", b"\x07", b"\x18", b"\x05", b"\r", b"\n", b"\b", b"\x0e", b"\x00",
)  # fmt: skip
ENDS = b"ABCDHJKLMPSTXZ`abcdefghilmnpqrstux~@"
WORDS = ("plain", "漢字", "👩‍👩‍👧", "e\u0301", "\u202eevil", "\u200b", "\ufeff", "🇩🇪", "\U000e0041")

ACTS = re.compile(
    r"\x1b\[(?:[0-9;:]*[@A-IKLMPSTXZ`abdefmrsu]|[012]?J|4[hl]|\?[0-9;]+[hl]|[0-6]? q)|\x1b[78DEM=>]|\x1b[()][0AB]"
)
"""The sequences that may reach the outer terminal, written down independently of the filter."""

FOREIGN = re.compile("[\x00-\x06\x0b\x0c\x10-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")

UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
"""What no drawn line may have: controls, separators of lines, bidi marks and invisible characters."""


def piece(rng: random.Random) -> bytes:
    """A few bytes that a hostile guest may write: sequences whole, cut short and overlong, text, and noise."""
    kind = rng.random()
    if kind < 0.35:
        parameters = bytes(rng.choices(b"0123456789;:?<=>! \"'$", k=rng.randrange(12)))
        return rng.choice(KINDS) + parameters + bytes([rng.choice(ENDS)]) * rng.randrange(2)
    if kind < 0.6:
        return rng.choice(WORDS).encode()[: rng.randrange(1, 30)]
    return rng.randbytes(rng.randrange(1, 200)) if kind < 0.8 else b"text of a program " * rng.randrange(1, 9)


def chunk(rng: random.Random) -> bytes:
    """As much as is interpreted at a time."""
    pieces, size = [], 0
    while size < CHUNK:
        pieces.append(piece(rng))
        size += len(pieces[-1])
    return b"".join(pieces)[:CHUNK]


def on_screen(emulator: GhosttyEmulator, strip: LineFilter, rng: random.Random, data: bytes) -> str:
    """Feed the app's emulator. Returns what would act on the outer terminal."""
    if rng.random() < 0.02:
        emulator.resize(rng.randrange(1, 300), rng.randrange(1, 100))
    emulator.feed(data)
    emulator.refresh()
    for y in range(emulator.rows):
        for segment in strip.apply(list(emulator.line(y)), BLACK):
            if UNSEEN.search(segment.text) or segment.control or (segment.style and segment.style.link):
                return repr(segment)
    return ""


def filtered(screen_filter: ScreenFilter, data: bytes) -> str:
    """Feed the filter of ``shell`` and ``recordings play``. Returns what would act on the outer terminal."""
    left = ACTS.sub("", screen_filter.feed(data).decode())
    found = FOREIGN.search(left)
    return repr(left[max(0, found.start() - 20) : found.start() + 20]) if found else ""


def main() -> int:
    """Print how far it came."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rng, began, done = random.Random(seed), time.perf_counter(), 0
    emulator, strip, screen_filter = GhosttyEmulator(120, 40), StripControls(), ScreenFilter()
    while done < most * 1_000_000:
        data = chunk(rng)
        found = on_screen(emulator, strip, rng, data) or filtered(screen_filter, data)
        if found:
            print(f"seed {seed}, after {done:,} bytes: {found}")
            return 1
        done += len(data)
    print(f"seed {seed}: {done / 1e6:.0f} MB, no crash and no foreign byte, in {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
