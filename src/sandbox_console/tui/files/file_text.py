"""A sandbox's files as text: a row for each, and the contents of one. Pure."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import datetime

from textual.content import Content

from sandbox_console.model.guest import FileInfo, FileKind
from sandbox_console.model.text import clean
from sandbox_console.tui.text.formatting import DASH, size
from sandbox_console.tui.widgets.table.table import Row
from sandbox_console.tui.widgets.table.table_layout import Column

COLUMNS = (
    Column("name", "NAME", 20, 80, priority=0, flex=True),
    Column("size", "SIZE", 7, 9, align="right", priority=0),
    Column("mode", "MODE", 10, 10, priority=2),
    Column("owner", "OWNER", 9, 13, priority=3),
    Column("modified", "MODIFIED", 16, 16, priority=1),
)
_SIGNS = {FileKind.DIRECTORY: "/", FileKind.LINK: " →", FileKind.OTHER: " ?", FileKind.FILE: ""}


def file_row(info: FileInfo, mask: Callable[[str], str] = str) -> Row:
    """Return a file as a row of COLUMNS. The name is shown through ``mask``; the key is the unchanged name."""
    name = clean(mask(info.name), cap=1000) + _SIGNS[info.kind]
    if info.target:
        name += f" {clean(mask(info.target), cap=1000)}"
    kinds = {FileKind.DIRECTORY: stat.S_IFDIR, FileKind.LINK: stat.S_IFLNK, FileKind.FILE: stat.S_IFREG}
    owner = DASH if info.uid is None else f"{info.uid}:{info.gid}"
    cells = (
        name,
        "" if info.kind is FileKind.DIRECTORY else size(info.size),
        stat.filemode(kinds.get(info.kind, 0) | info.mode),
        owner,
        _time(info.modified_at),
    )
    style = "accent" if info.kind is FileKind.DIRECTORY else ""
    order = (info.name.casefold(), info.size, info.mode, owner, info.modified_at)
    return Row(info.name, cells, (style, "", "dim", "dim", "dim"), order)


def _time(at: float | None) -> str:
    try:
        return DASH if at is None else f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}"
    except (OverflowError, OSError, ValueError):  # a guest can set any time
        return "?"


def local_name(name: str) -> str:
    """Return a guest's file name as a safe local name, without a path or characters that are special in a shell."""
    safe = "".join(char if char.isascii() and (char.isalnum() or char in "._-") else "-" for char in name)
    return safe.lstrip(".-")[:200] or "download"


def file_words(data: bytes, *, more: bool, downloads: str = "") -> Content:
    """Return a file for reading: text is cleaned line by line, anything else is a hex dump.

    ``more`` means that the file continues after ``data``. ``downloads`` is the hint for what downloads it.
    """
    if b"\0" in data[:8192]:
        lines = [_hex(at, data[at : at + 16]) for at in range(0, min(len(data), 16 * 1024), 16)]
        more = more or len(data) > 16 * 1024
    else:
        lines = [clean(line.expandtabs(8)) for line in data.decode("utf-8", "replace").split("\n")]
    if more:
        lines.append("; ".join(filter(None, ("… the rest is not shown", downloads))))
    return Content("\n".join(lines) or "It is empty.")


def _hex(at: int, part: bytes) -> str:
    shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):<47}  {shown}"
