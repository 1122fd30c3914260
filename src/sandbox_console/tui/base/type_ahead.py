"""Makes keys typed at full speed work as they do when typed slowly.

A key can open a question or a page, which takes a moment. The keys after it belong to what opens, not to what is
still on screen, so they wait until it is shown. So ``x``, ``y`` in one burst opens a question and answers it,
questions do not stack, and no key meant for a question acts on the list.
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
"""Seconds that keys wait for a question about a backend that does not answer. After that they are dropped."""
WAIT_PARTS = 10
KEYS_MOST = 2048
"""The most keys that wait. Further ones are dropped, with a message."""
DROPPED_TOLD_S = 1.0
"""Seconds that dropped keys are counted before the message is shown: a flood is reported once."""


class TypeAheadApp(SafeApp[Result], Generic[Result]):
    """Delivers keys one at a time: each waits until what the last one opened can accept it."""

    def __init__(self) -> None:
        super().__init__()
        self._waits: dict[object, asyncio.TimerHandle] = {}
        self._typed: list[events.Key | events.Paste] = []
        self._passing: object = None
        self._delivered: events.Key | events.Paste | None = None
        self._dropped = 0
        self._telling: Timer | None = None

    @property
    def typing_waits(self) -> bool:
        """Whether keys are waiting for something to open."""
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
        """Run the work that a key requested. Keys wait until it shows a screen or has ended.

        ``keys_wait=False`` is for a widget that already has the focus and holds keys itself, such as an opening shell.
        """
        if not keys_wait:
            return super().run_worker(work, *args, **options)
        wait = self._wait()
        worker: Worker[Any] = super().run_worker(work, *args, **options)
        if worker._task is None:  # noqa: SLF001 - it was set to start later
            self._go_on(wait)
        else:  # the task, not the work: an exclusive one may be cancelled before its first step
            worker._task.add_done_callback(lambda _: self._go_on(wait))  # noqa: SLF001
        return worker

    def push_screen(self, screen: Screen[Any] | str, *args: Any, **options: Any) -> Any:
        """Show a screen. Keys wait until it has its widgets and its focus. An open page is not opened twice."""
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
        """Show the palette, but not over a question: its commands act on the page below, where questions would stack.

        Unlike Textual's, it has no id: one that is closing still has its id, and a second with that id ends the app.
        """
        if not any(isinstance(screen, ModalScreen) for screen in self.screen_stack):
            self.push_screen(CommandPalette())

    def _dismiss(self, screen: Screen[Any], result: Any = None) -> AwaitComplete:
        """Close a screen if it is on top. Textual closes whichever is, so a second click would close the page below."""
        return type(screen).dismiss(screen, result) if screen is self.screen else AwaitComplete()

    def _wait(self) -> object:
        wait = object()
        self._count_down(wait, WAIT_PARTS)
        return wait

    def _count_down(self, wait: object, left: int) -> None:
        """Give up after ``left`` parts of the time. Each starts when the app reaches it: app delays don't count."""
        if left == 0:
            self._give_up(wait)
            return
        later = asyncio.get_running_loop().call_later
        self._waits[wait] = later(WAIT_S / WAIT_PARTS, self._count_down, wait, left - 1)

    def _held(self, event: events.Key | events.Paste) -> bool:
        """Return whether an event must wait. One that bubbles up through the widgets does not wait for itself.

        A new one also waits for those that wait no more but are not delivered yet, or it would overtake them.
        """
        if event.is_forwarded:
            return bool(self._waits.keys() - {self._passing})
        return bool(self._waits) or (bool(self._typed) and event is not self._delivered)

    def _may_open(self, event: events.Event) -> TypeGuard[events.InputEvent]:
        """Return whether an event may open something: a click, or a key other than a letter in an input line.

        Keys are delivered one at a time. If two bubbled up together, what the first one opens would send the second
        back to the end of the queue, and in a burst all of them, again with each key.
        """
        if isinstance(event, events.Key):
            return event.is_forwarded or not (event.is_printable and isinstance(self.focused, Input))
        return isinstance(event, events.MouseUp) and not event.is_forwarded

    def _on_the_way(self, event: events.Event) -> list[DOMNode | MessagePump]:
        """Return the nodes that an event, and a message caused by it, pass through on the way up to the app."""
        below: DOMNode = self.focused or self.screen
        if isinstance(event, events.MouseUp):
            with suppress(NoWidget):
                below, _ = self.get_widget_at(event.x, event.y)
        nodes = [node for node in below.ancestors_with_self if node is not self]
        return [nodes[0], *nodes] if nodes else []  # a button posts its press message to itself

    def _behind(self, nodes: Sequence[DOMNode | MessagePump], then: Callable[[], None]) -> None:
        """Call ``then`` after every message that is on its way up through these nodes to the app."""
        if not nodes:
            self.call_later(then)
        elif not nodes[0].call_later(self._behind, nodes[1:], then):
            self._behind(nodes[1:], then)

    def _opened(self) -> None:
        """Stop waiting: a screen has the keys now, whatever opened it is still doing."""
        for wait in [*self._waits]:
            self._go_on(wait)

    def _give_up(self, wait: object) -> None:
        self._drop([*self._typed])
        self._go_on(wait)

    def _drop(self, keys: Sequence[events.Key | events.Paste]) -> None:
        """Drop keys, and report it once while this goes on."""
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
            match held := self._typed.pop(0):
                case events.Paste(text=text):
                    self._delivered = events.Paste(text)
                case key:
                    self._delivered = events.Key(key.key, key.character)
            self._delivered.time = held.time  # its place, if it has to wait again
            await self.on_event(self._delivered)


def after_keys(screen: Screen[Any], then: Callable[[], object]) -> None:
    """Call ``then`` when the keys so far have reached the focused widget, which a key with priority overtakes."""
    if not (screen.focused or screen).call_later(screen.call_later, then):
        then()
