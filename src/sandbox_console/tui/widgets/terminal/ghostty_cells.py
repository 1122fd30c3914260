"""The layout of libghostty's 64-bit cells, read from the library bit by bit: none is assumed."""

from __future__ import annotations

from msgspec import Struct
from pyghostty import ffi, lib


class Field(Struct, frozen=True):
    """The bits of a cell that hold one thing."""

    mask: int
    shift: int


class Layout(Struct, frozen=True):
    """The fields of a cell."""

    tag: Field
    code: Field
    wide: Field
    style: Field

    def look(self, cell: int) -> int:
        """A number that is equal for cells that look alike, and 0 for those without any style."""
        if (cell & self.tag.mask) >> self.tag.shift >= lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
            return cell
        return cell & self.style.mask

    def codepoint(self, cell: int) -> int:
        """Its first character; 0 in an empty cell and in one that is only a background."""
        if (cell & self.tag.mask) >> self.tag.shift >= lib.GHOSTTY_CELL_CONTENT_BG_COLOR_PALETTE:
            return 0
        return (cell & self.code.mask) >> self.code.shift

    def is_cluster(self, cell: int) -> bool:
        """Whether more characters are joined to the first."""
        return (cell & self.tag.mask) >> self.tag.shift == int(lib.GHOSTTY_CELL_CONTENT_CODEPOINT_GRAPHEME)

    def is_wide(self, cell: int) -> bool:
        """Whether it covers the next cell too."""
        return (cell & self.wide.mask) >> self.wide.shift == int(lib.GHOSTTY_CELL_WIDE_WIDE)

    def is_tail(self, cell: int) -> bool:
        """Whether it is the cell that a wide one covers."""
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
