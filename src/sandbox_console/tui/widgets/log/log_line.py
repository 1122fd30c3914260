"""One log line as styled segments: cleaned, with its own colours, its level and search matches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from msgspec import Struct
from rich.ansi import AnsiDecoder
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from sandbox_console.logs.fields import Folded, fold, parse, spread
from sandbox_console.logs.level import Level, level_of
from sandbox_console.logs.store import GAP, MARK, STDERR, Line
from sandbox_console.model.text import clean
from sandbox_console.tui.base.contrast import readable

MARKS = {STDERR: "E", GAP: "~", MARK: "="}
"""Marked with a letter, not with colour alone."""
TAB = 8
NAME_WIDTH = 16
# A guest must not be able to hide text from the reader or make it blink.
_SHOWN = Style(conceal=False, blink=False, blink2=False)
_MATCH = Style(reverse=True, bold=True)
_LEVELS = {Level.TRACE: "quiet", Level.DEBUG: "quiet", Level.WARN: "warn", Level.ERROR: "error", Level.FATAL: "fatal"}

StyleOf = Callable[[str], Style]


class Rule(Struct, frozen=True):
    """A highlight rule: what it matches, and the name of its style."""

    pattern: Any
    style: str


def line_text(line: Line) -> Text:
    """Return a line's text, made safe: of ANSI sequences, only colours have an effect."""
    raw = clean(line.data.rstrip(b"\r\n"), keep_sgr=True)
    if "\x1b" not in raw:
        return Text(raw.expandtabs(TAB), end="")
    text = AnsiDecoder().decode_line(raw)
    text.end = ""
    text.expand_tabs(TAB)
    text.stylize(_SHOWN)
    return text


def body_text(line: Line, *, folded: bool, style_of: StyleOf) -> Text:
    """Return a line's text in the colour of its level. A JSON line is shortened if ``folded``."""
    if line.kind in (GAP, MARK):
        return _styled(line_text(line), style_of("gap" if line.kind == GAP else "mark"))
    if folded and (record := parse(line.data)) is not None:
        return _folded_text(fold(record), style_of)
    text = line_text(line)
    if text.spans:  # it has colours of its own
        return text
    name = _LEVELS.get(level_of(text.plain), "error" if line.kind == STDERR else "")
    return _styled(text, style_of(name)) if name else text


def _styled(text: Text, style: Style) -> Text:
    text.stylize(style)
    return text


def _folded_text(record: Folded, style_of: StyleOf) -> Text:
    text = Text(end="")
    level = _LEVELS.get(record.level, "info")
    for words, name in ((record.at, "quiet"), (record.level_word.upper(), level)):
        if words:
            text.append(clean(words, cap=40), style_of(name)).append(" ")
    text.append(clean(record.message), style_of(level) if level in ("error", "fatal", "warn") else Style.null())
    for key, value in record.rest:
        text.append(f"  {clean(key, cap=80)}=", style_of("key")).append(clean(value, cap=400))
    text.expand_tabs(TAB)
    return text


def spread_texts(line: Line, style_of: StyleOf) -> list[Text]:
    """Return the rows of an expanded JSON line, or none for any other line."""
    record = parse(line.data)
    return [] if record is None else [_spread_row(row, style_of) for row in spread(record)]


def _spread_row(row: str, style_of: StyleOf) -> Text:
    text = Text(clean(row), end="")
    key, colon, _ = text.plain.partition('": ')
    if colon and key.lstrip().startswith('"'):
        text.stylize(style_of("key"), len(key) - len(key.lstrip()), len(key) + 1)
    return text


def is_json(line: Line) -> bool:
    """Return whether a line is JSON that can be expanded."""
    return line.kind not in (GAP, MARK) and parse(line.data) is not None


def prefix(line: Line, *, timestamps: bool, dated: bool = False) -> str:
    """Return the prefix of a line: its local time, with the day if ``dated``, and the mark of its stream."""
    mark = MARKS.get(line.kind, " ")
    if not timestamps:
        return f"{mark} "
    at = datetime.fromtimestamp(line.at_ns / 1e9).astimezone()
    day = f"{at:%m-%d} " if dated else ""
    return f"{day}{at:%H:%M:%S}.{line.at_ns // 1_000_000 % 1000:03} {mark} "


def highlight(text: Text, search: Any, rules: Sequence[Rule], style_of: StyleOf) -> None:
    """Colour the matches of the rules, then highlight those of a search, as far as they are in the text shown."""
    for rule in rules:
        _stylize(text, rule.pattern, style_of(rule.style))
    if search is not None:
        _stylize(text, search, _MATCH)


def _stylize(text: Text, pattern: Any, style: Style) -> None:
    for match in pattern.finditer(text.plain):
        if match.end() > match.start():
            text.stylize(style, match.start(), match.end())


def is_match(segment: Segment) -> bool:
    """Return whether a segment is a search match."""
    return segment.style is not None and bool(segment.style.reverse and segment.style.bold)


def segments(text: Text, base: Style) -> list[Segment]:
    """Return a text as segments over a base style."""
    if not text.spans:
        return [Segment(text.plain, base)]
    return [Segment(part.plain, _readable(base + _style_of(part))) for part in text.divide(_cuts(text))]


def _cuts(text: Text) -> list[int]:
    edges = {edge for span in text.spans for edge in (span.start, span.end)}
    return sorted(edge for edge in edges if 0 < edge < len(text.plain))


@lru_cache(maxsize=4096)
def _readable(style: Style) -> Style:
    """Return a style in which text can be distinguished from its background: red on red hides nothing."""
    ink, ground = style.color, style.bgcolor
    if ink is None or ground is None or ink.is_default or ground.is_default:
        return style
    before = ink.get_truecolor()
    after = readable(before, ground.get_truecolor())
    return style if after == before else style + Style(color=Color.from_rgb(*after))


def _style_of(part: Text) -> Style:
    return Style.combine([Style.null(), *(span.style for span in part.spans if isinstance(span.style, Style))])


def wrapped(runs: list[Segment], width: int) -> list[list[Segment]]:
    """Return segments wrapped to rows of at most ``width`` cells."""
    rows: list[list[Segment]] = [[]]
    room = width
    for run in runs:
        rest = run
        while (size := cell_len(rest.text)) > room:
            head, rest = rest.split_cells(room)
            rows[-1].append(head)
            rows.append([])
            room = width
        rows[-1].append(rest)
        room -= size
    return rows
