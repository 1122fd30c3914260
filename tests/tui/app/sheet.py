"""One picture of a screen at three sizes in two themes, taken of one app that is resized and given other colours.

To start the app takes 0.5 s of CPU, to resize it and to draw a part 0.1 s. What is compared, and written by
``--snapshot-update``, is one SVG that a browser shows: dark above, light below, small to large from left to right. Each
row of the terminal is one line of the file, so that a diff tells what changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from xml.sax.saxutils import escape

from pytest_textual_snapshot import SVGImageExtension
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from sandbox_console.tui.base.themes import DARK, LIGHT

SMALL, MIDDLE, LARGE = (80, 24), (120, 40), (200, 60)
SIZES = (SMALL, MIDDLE, LARGE)
THEMES = (DARK, LIGHT)
_WIDE, _HIGH, _GAP = 12, 24, 24
_LIMIT_S = 60.0
"""For how long a part may become the stored one: what is loaded comes late on a busy machine."""
_STILL_S = 0.4
"""A part that is not stored is taken when it has not changed for this long."""


class Sheets:
    """``await sheets(app, pilot, "name")`` compares one; ``finish()`` fails with the names of those that differ.

    ``ready`` says whether what is to be seen is there.
    """

    def __init__(self, snapshot) -> None:
        self._snapshot = snapshot.use_extension(SVGImageExtension)
        self._updating = snapshot.update_snapshots
        self._wrong: list[str] = []

    async def __call__(
        self, app, pilot, name="", *, ready: Callable[[], bool] = lambda: True, sizes=SIZES, themes=THEMES
    ):
        stored = {} if self._updating else _parts(self._stored(name))
        app.clear_notifications()
        places = list(_places(sizes, themes))
        drawn = {}
        for title, _, size, theme in _way(app, places):
            app.theme = theme.name
            await pilot.resize_terminal(*size)
            rows = await _still(app, pilot, size, ready, stored.get(title), patient=not self._wrong)
            if not ready():
                self._wrong.append(f"{name or 'sheet'}: {title}: what should be there never came")
            elif rows != stored.get(title) and not self._updating:
                self._wrong.append(f"{name or 'sheet'}: {title}")
            drawn[title] = rows
        wide = max(x + size[0] * _WIDE for _, (x, _), size, _ in places) + _GAP
        high = max(y + size[1] * _HIGH for _, (_, y), size, _ in places) + _GAP
        svg = _FRAME.format(
            wide=wide, high=high, parts="\n".join(_part(title, at, drawn[title]) for title, at, _, _ in places)
        )
        same = (self._snapshot(name=name) if name else self._snapshot) == svg
        assert same or self._wrong

    def finish(self) -> None:
        assert not self._wrong, "these look other than before; --snapshot-update draws them anew: " + "; ".join(
            self._wrong
        )

    def _stored(self, name: str) -> str:
        shot = self._snapshot(name=name) if name else self._snapshot
        found, _ = shot._recall_data(index=shot.index)
        return found or ""


_FRAME = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}">
<style>text {{ font: 20px "DejaVu Sans Mono", monospace; white-space: pre }} rect {{ shape-rendering: crispEdges }}</style>
<rect width="{wide}" height="{high}" fill="#808080"/>
{parts}
</svg>
"""


def _part(title: str, at: tuple[int, int], rows: str) -> str:
    return f'<svg id="{title}" x="{at[0]}" y="{at[1]}">\n{rows}</svg>'


def _way(app, places):
    """All of them from what is on now, to and fro: to give all widgets other styles takes longest."""
    themes = list(dict.fromkeys(theme.name for _, _, _, theme in places))
    themes.sort(key=lambda name: name != app.theme)
    to_and_fro = []
    at = app.size
    for name in themes:
        one = [place for place in places if place[3].name == name]
        to_and_fro += one[::-1] if one[-1][2] == tuple(at) else one
        at = to_and_fro[-1][2]
    return to_and_fro


def _parts(svg: str) -> dict[str, str]:
    return dict(re.findall(r'<svg id="([^"]+)"[^>]*>\n(.*?)</svg>', svg, re.DOTALL))


def _places(sizes, themes) -> Iterator[tuple[str, tuple[int, int], tuple[int, int], object]]:
    y = _GAP
    for theme in themes:
        x = _GAP
        for size in sizes:
            yield f"{theme.name} {size[0]}x{size[1]}", (x, y), size, theme
            x += size[0] * _WIDE + _GAP
        y += max(high for _, high in sizes) * _HIGH + _GAP


async def _still(app, pilot, size, ready, stored: str | None, *, patient: bool) -> str:
    """What is drawn when it is as stored, or does not change any more."""
    began = since = time.monotonic()
    rows = ""
    limit = _LIMIT_S if patient else 2.0
    while True:
        await pilot.pause()
        for line in app.screen.query("Input, TextArea"):
            line.cursor_blink = False
            if line.has_focus:
                line._cursor_visible = True  # a TextArea stops blinking as it is, seen or not
                line.refresh()  # and stays on the screen as it was drawn last
        before, rows = rows, draw(app, size)
        if rows == stored:
            return rows
        now = time.monotonic()
        since = since if rows == before and ready() else now
        if now - since > (_STILL_S if stored is None or not patient else limit) or now - began > limit:
            return rows
        await pilot.pause(0.03)


def draw(app, size) -> str:
    """The screen as rows of SVG, one to a line."""
    ground = app.current_theme.background
    wide, high = size[0] * _WIDE, size[1] * _HIGH
    rows = [f'<rect width="{wide}" height="{high}" fill="{ground}"/>\n']
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        row = "".join(_row(Segment.simplify(strip), ground, app.current_theme.foreground))
        if row:
            rows.append(f'<g transform="translate(0,{y * _HIGH})">{row}</g>\n')
    return "".join(rows)


def _row(segments, ground: str, ink: str) -> Iterator[str]:
    x = 0
    texts = []
    for text, style, _ in segments:
        fill, back = _colours(style or Style.null(), ink, ground)
        cells = cell_len(text)
        if back != ground:
            yield f'<rect x="{x * _WIDE}" width="{cells * _WIDE}" height="{_HIGH}" fill="{back}"/>'
        if text.strip() or (style and style.underline):
            texts.append(_text(x, cells, text, fill, style or Style.null()))
        x += cells
    yield from texts


def _text(x: int, cells: int, text: str, fill: str, style: Style) -> str:
    looks = ' font-weight="bold"' * bool(style.bold) + ' font-style="italic"' * bool(style.italic)
    if style.underline or style.strike:
        looks += f' text-decoration="{"underline" if style.underline else "line-through"}"'
    place = f'x="{x * _WIDE}" y="18" textLength="{cells * _WIDE}"'
    return f'<text {place} fill="{fill}"{looks}>{escape(text)}</text>'


def _colours(style: Style, ink: str, ground: str) -> tuple[str, str]:
    fill, back = _hex(style.color, ink), _hex(style.bgcolor, ground)
    return (back, fill) if style.reverse else (fill, back)


def _hex(color: Color | None, default: str) -> str:
    return default if color is None or color.is_default else color.get_truecolor().hex
