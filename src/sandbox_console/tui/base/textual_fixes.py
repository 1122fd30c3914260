"""Patches classes of Textual 8.2.8, which is pinned, for bugs that occur when events arrive faster than the screen.

Textual creates its own lists, palette, writer and compositor, so a subclass cannot fix them. Each patch is covered by
a test in tests/tui/app/test_bursts.py, test_end_signals.py or test_partial_redraw.py. The bugs were found by
tests/tui/test_key_fuzz.py.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal

from textual import events, work
from textual._compositor import Compositor
from textual.command import CommandPalette
from textual.css.query import NoMatches
from textual.drivers._writer_thread import WriterThread
from textual.geometry import Region
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import OptionList

_click = OptionList._on_click  # noqa: SLF001
_move = OptionList._move_page  # noqa: SLF001
_begin_timer = Timer.__init__
_gather = CommandPalette._gather_commands.__wrapped__  # type: ignore[attr-defined]  # noqa: SLF001 - without @work


async def _on_click(self: OptionList, event: events.Click) -> None:
    """Choose the clicked option, unless the list has become shorter since it was drawn."""
    at = event.style.meta.get("option")
    if at is None or 0 <= at < self.option_count:
        await _click(self, event)


def _move_page(self: OptionList, direction: Literal[-1, 1]) -> None:
    """Move by a page, unless the list has no size yet: without one it does not know where its options are."""
    if (self.highlighted or 0) in self._index_to_line:
        _move(self, direction)


@work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)  # noqa: SLF001
async def _gather_commands(self: CommandPalette, search_value: str) -> None:
    """Gather the commands, unless the palette was closed before its list was mounted."""
    try:
        await _gather(self, search_value)
    except NoMatches:
        if self.is_attached and self.is_running and self in self.app.screen_stack:
            raise


def _write_until_closed(self: WriterThread) -> None:
    """Write queued output. Without a terminal it is dropped, or the app would wait forever for room in the queue."""
    gone = False
    while (text := self._queue.get()) is not None:
        if gone:
            continue
        try:
            self._file.write(text)
            if self._queue.empty():
                self._file.flush()
        except OSError:
            gone = True
    with suppress(OSError):
        self._file.flush()


@functools.wraps(_begin_timer)
def _begin(self: Timer, *args: Any, **options: Any) -> None:
    """Never skip the only tick of a timer that runs once.

    It was skipped if the process did not run for the timer's interval, 8 ms for a resize, just as it began. The app
    then waited for that tick forever, and no later resize had an effect.
    """
    _begin_timer(self, *args, **options)
    if self._repeat == 0:
        self._skip = False


def _get_renders(self: Compositor, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
    """Render widgets, but only their lines in the rows of ``crop``.

    Textual renders all lines of every widget whose container reaches into the crop, the whole screen's for one row of
    a list: a third of the CPU time of a cursor key.
    """
    rows = None if crop is None else Region(0, crop.y, self.size.width, crop.height)
    for widget, (region, clip) in self.visible_widgets.items():
        kept = clip if rows is None else clip.intersection(rows)
        if seen := region.intersection(kept):
            yield region, kept, widget.render_lines(seen.translate(-region.offset))


def mend() -> None:
    """Apply the patches. Calling this more than once has no further effect."""
    OptionList._on_click = _on_click  # type: ignore[method-assign]  # noqa: SLF001
    WriterThread.run = _write_until_closed  # type: ignore[method-assign]
    OptionList._move_page = _move_page  # type: ignore[method-assign]  # noqa: SLF001
    Timer.__init__ = _begin  # type: ignore[method-assign]
    Compositor._get_renders = _get_renders  # type: ignore[method-assign]  # noqa: SLF001
    CommandPalette._gather_commands = _gather_commands  # type: ignore[method-assign]  # noqa: SLF001
