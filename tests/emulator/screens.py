"""The screen of the app's emulator beside that of xterm.js, character by character with its look."""

from __future__ import annotations

from collections.abc import Iterator

from pyghostty import ffi, lib
from rich.style import Style
from tests.emulator.capture import Capture, Runs, Screen

from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator, _rich_style

ATTRIBUTES = ("bold", "italic", "dim", "reverse", "conceal", "strike", "overline", "underline")
Rgb = tuple[int, int, int]
Look = tuple[str, Style]
_PLAIN = Style()


def look(character: str, style: Style | None) -> Look:
    """A character and what can be seen of its style: a blank one has no ink."""
    style = style or _PLAIN
    if character == " " and not (style.reverse or style.underline or style.strike or style.overline):
        return character, Style(bgcolor=style.bgcolor)
    seen = {name: bool(getattr(style, name)) or None for name in ATTRIBUTES}
    return character, Style(color=style.color, bgcolor=style.bgcolor, **seen)  # type: ignore[arg-type]


class Ours:
    """The app's emulator, going through a capture."""

    def __init__(self, capture: Capture) -> None:
        self.emulator = GhosttyEmulator(capture.cols, capture.rows)
        self._steps = capture.steps

    def checkpoints(self) -> Iterator[str]:
        """Go to the next checkpoint, and give its name."""
        for kind, *rest in self._steps:
            if kind == "out":
                self.emulator.feed(rest[0].encode("latin-1"))
            elif kind == "size":
                self.emulator.resize(*rest)
            else:
                self.emulator.refresh()
                yield rest[0]

    def row(self, y: int) -> list[Look]:
        """What a row of the screen shows."""
        return [look(character, segment.style) for segment in self.emulator.line(y) for character in segment.text]

    def palette(self) -> list[Rgb]:
        """The 256 colours that it has now."""
        found = ffi.new("GhosttyColorRgb[256]")
        lib.ghostty_terminal_get(self.emulator._handle, lib.GHOSTTY_TERMINAL_DATA_COLOR_PALETTE, found)
        return [(one.r, one.g, one.b) for one in found]


def row_of_xterm(runs: Runs, palette: list[Rgb]) -> list[Look]:
    """What a row of xterm.js shows, in the app's colours."""
    found: list[Look] = []
    for text, ink, ground, flags in runs:
        attributes = tuple(name for bit, name in enumerate(ATTRIBUTES) if flags >> bit & 1)
        style = _rich_style(_rgb(ink, palette), _rgb(ground, palette), attributes)
        found += [look(character, style) for character in text]
    return found


def _rgb(color: int, palette: list[Rgb]) -> Rgb | None:
    if color < 0:
        return None
    return palette[color] if color < 256 else ((color >> 16) & 255, (color >> 8) & 255, color & 255)


def differences(ours: Ours, theirs: Screen) -> list[str]:
    """What is not equal: rows of text, rows of looks, the screen and the cursor. Empty if all is."""
    found, palette = [], ours.palette()
    if ours.emulator.alternate_screen != theirs.alternate:
        found.append(f"alternate screen: ours {ours.emulator.alternate_screen}, xterm.js {theirs.alternate}")
    cursor = ours.emulator.cursor
    x, y = theirs.cursor
    if cursor is not None and (cursor.x, cursor.y) != (
        min(x, ours.emulator.cols - 1),
        y,
    ):  # xterm.js waits behind a row
        found.append(f"cursor: ours {cursor.x},{cursor.y}, xterm.js {theirs.cursor}")
    for y, runs in enumerate(theirs.rows):
        mine, their = ours.row(y), row_of_xterm(runs, palette)
        if mine != their:
            found.append(f"row {y}: {_difference(mine, their)}")
    return found


def _difference(ours: list[Look], theirs: list[Look]) -> str:
    mine, their = ("".join(character for character, _ in one) for one in (ours, theirs))
    if mine != their:
        return f"ours {mine.rstrip()!r}, xterm.js {their.rstrip()!r}"
    x = next(at for at, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    return f"at {x}, {mine[x : x + 8]!r}: ours {ours[x][1]!s}, xterm.js {theirs[x][1]!s}"
