"""Keys typed at full speed mean what they mean when typed slowly.

A key can open a question or a page, which takes a moment. The keys behind it belong to what opens, not to what is
still on screen: they wait until it is there. So ``x``, ``y`` in one burst asks and answers, questions do not stack,
and nothing that was meant for a question acts on the list.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeGuard, TypeVar

from textual import events
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.errors import NoWidget
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen
from textual.timer import Timer
from textual.widgets import Input
from textual.worker import Worker

from sandbox_console.tui.base.safety import SafeApp

Result = TypeVar("Result")

WAIT_S = 3.0
"""Seconds that keys wait for a question of a backend that does not answer; then they are dropped."""
WAIT_PARTS = 10
KEYS_MOST = 2048
"""Keys that wait; those behind them are dropped, with a word."""
DROPPED_TOLD_S = 1.0
"""How long dropped keys are counted before the word is said: a flood is told of once."""


class TypeAheadApp(SafeApp[Result], Generic[Result]):
    """Delivers one key after the other: the next when what the last one opened can take it."""

    def __init__(self) -> None:
        super().__init__()
        self._waits: dict[object, asyncio.TimerHandle] = {}
        self._typed: list[events.Key | events.Paste] = []
        self._passing: object = None
        self._dropped = 0
        self._telling: Timer | None = None

    @property
    def typing_waits(self) -> bool:
        """Whether keys wait for something that opens."""
        return bool(self._waits)

    async def on_event(self, event: events.Event) -> None:
        """Hold keys back while something opens, and drop clicks: they were aimed at what is about to be covered."""
        if isinstance(event, events.Key | events.Paste) and self._held(event):
            insort(self._typed, event, key=lambda one: one.time)
            self._drop(self._typed[KEYS_MOST:])
        elif self._waits and isinstance(event, events.MouseDown | events.MouseUp | events.Click | events.MouseScrollUp):
            event.stop()
        elif self._may_open(event):
            wait = self._wait()
            self._passing = None if event.is_forwarded else wait
            await super().on_event(event)
            self._behind(self._on_the_way(event), lambda: self._go_on(wait))
        else:
            await super().on_event(event)

    def run_worker(self, work: Any, *args: Any, keys_wait: bool = True, **options: Any) -> Worker[Any]:
        """Run what a key asked for; keys wait until it shows a screen or has ended.

        ``keys_wait=False`` is for what has the focus already and keeps keys itself, as a shell that opens.
        """
        if not keys_wait:
            return super().run_worker(work, *args, **options)
        wait = self._wait()
        worker: Worker[Any] = super().run_worker(work, *args, **options)
        if worker._task is None:  # noqa: SLF001 - it was told to begin later
            self._go_on(wait)
        else:  # its task and not its work: an exclusive one may be cancelled before its first step
            worker._task.add_done_callback(lambda _: self._go_on(wait))  # noqa: SLF001
        return worker

    def push_screen(self, screen: Screen[Any] | str, *args: Any, **options: Any) -> Any:
        """Show a screen; keys wait until it has its widgets and its focus. A page that is open is not opened twice."""
        is_page = isinstance(screen, Screen) and not isinstance(screen, ModalScreen)
        if is_page and any(type(page) is type(screen) for page in self.screen_stack[1:]):
            return AwaitComplete()
        self._wait()
        if isinstance(screen, Screen):
            screen.dismiss = partial(self._dismiss, screen)  # type: ignore[method-assign]
        pushed = super().push_screen(screen, *args, **options)
        self.screen.call_later(self._opened)
        return pushed

    def action_command_palette(self) -> None:
        """Show the palette, but over no question: what it does is for the page below, where questions would stack.

        It has no id, as Textual's has: one that is closing still has it, and a second with the same ends the app.
        """
        if not any(isinstance(screen, ModalScreen) for screen in self.screen_stack):
            self.push_screen(CommandPalette())

    def _dismiss(self, screen: Screen[Any], result: Any = None) -> AwaitComplete:
        """Close a screen that is on top; Textual closes whatever is, so a second click would close the page below."""
        return type(screen).dismiss(screen, result) if screen is self.screen else AwaitComplete()

    def _wait(self) -> object:
        wait = object()
        self._count_down(wait, WAIT_PARTS)
        return wait

    def _count_down(self, wait: object, left: int) -> None:
        """Give up after so many parts of the time. Each begins when the app gets to it: its own delays do not count."""
        if left == 0:
            self._give_up(wait)
            return
        later = asyncio.get_running_loop().call_later
        self._waits[wait] = later(WAIT_S / WAIT_PARTS, self._count_down, wait, left - 1)

    def _held(self, event: events.Key | events.Paste) -> bool:
        """Whether it must wait; what comes up through the widgets does not wait for itself to have come up."""
        return bool(self._waits.keys() - ({self._passing} if event.is_forwarded else set()))

    def _may_open(self, event: events.Event) -> TypeGuard[events.InputEvent]:
        """Whether it may open something: a key, unless it is a letter in a line that is typed in, or a click.

        Keys go one after the other: of two on their way up through the widgets, what the first opens had to send the
        second back to the end of the row, and of a burst all of them, again with each.
        """
        if isinstance(event, events.Key):
            return event.is_forwarded or not (event.is_printable and isinstance(self.focused, Input))
        return isinstance(event, events.MouseUp) and not event.is_forwarded

    def _on_the_way(self, event: events.Event) -> list[DOMNode | MessagePump]:
        """What an event, and a message that it causes, goes through on its way up to the app."""
        below: DOMNode = self.focused or self.screen
        if isinstance(event, events.MouseUp):
            with suppress(NoWidget):
                below, _ = self.get_widget_at(event.x, event.y)
        nodes = [node for node in below.ancestors_with_self if node is not self]
        return [nodes[0], *nodes] if nodes else []  # a button tells itself of a click that it was pressed

    def _behind(self, nodes: Sequence[DOMNode | MessagePump], then: Callable[[], None]) -> None:
        """Call ``then`` behind every message that is on its way up through these nodes to the app."""
        if not nodes:
            self.call_later(then)
        elif not nodes[0].call_later(self._behind, nodes[1:], then):
            self._behind(nodes[1:], then)

    def _opened(self) -> None:
        """A screen has the keys now, whatever asked for it is still doing."""
        for wait in [*self._waits]:
            self._go_on(wait)

    def _give_up(self, wait: object) -> None:
        self._drop([*self._typed])
        self._go_on(wait)

    def _drop(self, keys: Sequence[events.Key | events.Paste]) -> None:
        """Leave keys out, and say so once while it goes on."""
        if not keys:
            return
        del self._typed[-len(keys) :]
        self._dropped += len(keys)
        if self._telling is None:
            self._telling = self.set_timer(DROPPED_TOLD_S, self._tell_dropped)

    def _tell_dropped(self) -> None:
        self.notify(
            f"{self._dropped:,} keys were dropped: they came faster than what they ask for.", severity="warning"
        )
        self._dropped, self._telling = 0, None

    def _go_on(self, wait: object) -> None:
        if (timer := self._waits.pop(wait, None)) is not None:
            timer.cancel()
        if self._typed and not self._waits:
            self.call_later(self._deliver)

    async def _deliver(self) -> None:
        while self._typed and not self._waits:
            match self._typed.pop(0):
                case events.Paste(text=text):
                    await self.on_event(events.Paste(text))
                case key:
                    await self.on_event(events.Key(key.key, key.character))
