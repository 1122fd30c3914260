"""What a program wrote to a terminal, with checkpoints, and the screens that xterm.js shows at them: data of the tests."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

from msgspec import Struct, convert, to_builtins

FOLDER = Path(__file__).parent / "captures"
Runs = list[tuple[str, int, int, int]]
"""A row as xterm.js writes it: text, foreground, background, flags."""


class Screen(Struct):
    """The screen of xterm.js at a checkpoint."""

    rows: list[Runs]
    cursor: tuple[int, int]
    alternate: bool


class Capture(Struct):
    """The output of a program. A step is ``out`` with bytes as Latin-1, ``size`` with columns and rows, or ``at`` with
    the name of a checkpoint."""

    program: str
    cols: int
    rows: int
    steps: list[tuple[Any, ...]]
    screens: list[Screen] = []

    @property
    def checkpoints(self) -> list[str]:
        """Their names, in order."""
        return [step[1] for step in self.steps if step[0] == "at"]


def names() -> list[str]:
    """The programs of which there are captures."""
    return sorted(path.name.removesuffix(".json.xz") for path in FOLDER.glob("*.json.xz"))


def load(program: str) -> Capture:
    """The capture of a program."""
    return convert(json.loads(lzma.decompress((FOLDER / f"{program}.json.xz").read_bytes())), Capture)


def store(capture: Capture) -> None:
    """Write it where load() finds it. Equal captures make equal files."""
    text = json.dumps(to_builtins(capture), separators=(",", ":"))
    (FOLDER / f"{capture.program}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))
