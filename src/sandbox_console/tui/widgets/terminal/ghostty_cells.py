"""The layout of libghostty's 64-bit cells. Each bit is read from the library, so none is assumed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from msgspec import Struct
from pyghostty import ffi, lib

_SHOWN = bytes(max(code, 0x20) for code in range(256))


class Field(Struct, frozen=True):
    """The bits of one field of a cell."""

    mask: int
    shift: int


class Layout(Struct, frozen=True):
    """The fields of a cell."""

    tag: Field
    code: Field
    wide: Field
    style: Field

    def look(self, cell: int) -> int:
        """Return a number that is equal for cells with equal styles, and 0 for cells without a style."""
        if (cell & self.tag.mask) >> self.tag.shift >= lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
            return cell
        return cell & self.style.mask

    def codepoint(self, cell: int) -> int:
        """Return a cell's first character, or 0 if it is empty or only a background."""
        if (cell & self.tag.mask) >> self.tag.shift >= lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
            return 0
        return (cell & self.code.mask) >> self.code.shift

    def plain(self, cells: Sequence[int]) -> str | None:
        """Return the text of cells that have one narrow ASCII character each, or none; otherwise None.

        A row of 120 takes 15 us, and 100 cell by cell.
        """
        if reduce(or_, cells, 0) & (self.tag.mask | self.wide.mask):
            return None
        mask, shift = self.code.mask, self.code.shift
        try:
            codes = bytes([(cell & mask) >> shift for cell in cells])
        except ValueError:  # one beyond 255
            return None
        return codes.translate(_SHOWN).decode("ascii") if codes.isascii() and b"\x7f" not in codes else None

    def is_cluster(self, cell: int) -> bool:
        """Return whether more characters are joined to the first."""
        return (cell & self.tag.mask) >> self.tag.shift == int(lib.GHOSTTY_CELL_CONTENT_CODEPOINT_GRAPHEME)

    def is_wide(self, cell: int) -> bool:
        """Return whether a cell also covers the next one."""
        return (cell & self.wide.mask) >> self.wide.shift == int(lib.GHOSTTY_CELL_WIDE_WIDE)

    def is_tail(self, cell: int) -> bool:
        """Return whether a cell is covered by the wide one before it."""
        return (cell & self.wide.mask) >> self.wide.shift == int(lib.GHOSTTY_CELL_WIDE_SPACER_TAIL)


def _field(data: int, ctype: str) -> Field:
    out = ffi.new(f"{ctype}*")
    mask = 0
    for bit in range(64):
        lib.ghostty_cell_get(1 << bit, data, out)
        mask |= (1 << bit) if int(out[0]) else 0
    shift = (mask & -mask).bit_length() - 1
    if not mask or (mask >> shift) & ((mask >> shift) + 1):
        raise ImportError(f"libghostty's cells are not laid out as bit fields (field {data}: {mask:#x})")
    return Field(mask, shift)


LAYOUT = Layout(
    tag=_field(lib.GHOSTTY_CELL_DATA_CONTENT_TAG, "GhosttyCellContentTag"),
    code=_field(lib.GHOSTTY_CELL_DATA_CODEPOINT, "uint32_t"),
    wide=_field(lib.GHOSTTY_CELL_DATA_WIDE, "GhosttyCellWide"),
    style=_field(lib.GHOSTTY_CELL_DATA_STYLE_ID, "uint16_t"),
)
