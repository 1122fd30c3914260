"""Keys typed at full speed mean what they mean when typed slowly.

A key can open a question or a page, which takes a moment. The keys behind it belong to what opens, not to what is
still on screen: they wait until it is there. So ``x``, ``y`` in one burst asks and answers, questions do not stack,
and nothing that was meant for a question acts on the list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from textual import events
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen
from textual.worker import Worker

from sandbox_console.tui.base.safety import SafeApp

Result = TypeVar("Result")

WAIT_S = 3.0
"""Seconds that keys wait for a question of a backend that does not answer; then they are dropped."""
KEYS_MOST = 256


class TypeAheadApp(SafeApp[Result], Generic[Result]):
    """Delivers one key after the other: the next when what the last one opened can take it."""

    def __init__(self) -> None:
        super().__init__()
        self._waits: dict[object, asyncio.TimerHandle] = {}
        self._typed: list[events.Key | events.Paste] = []

    @property
    def typing_waits(self) -> bool:
        """Whether keys wait for something that opens."""
        return bool(self._waits)

    async def on_event(self, event: events.Event) -> None:
        """Hold keys back while something opens, and drop clicks: they were aimed at what is about to be covered."""
        if self._waits and isinstance(event, events.Key | events.Paste):
            self._typed = sorted([*self._typed, event], key=lambda one: one.time)[:KEYS_MOST]
        elif self._waits and isinstance(event, events.MouseDown | events.MouseUp | events.Click | events.MouseScrollUp):
            event.stop()
        elif isinstance(event, events.Key) and event.is_forwarded:  # it came up through all widgets: a binding's
            wait = self._wait()
            await super().on_event(event)
            below = self.focused or self.screen
            self._behind([node for node in below.ancestors_with_self if node is not self], lambda: self._go_on(wait))
        else:
            await super().on_event(event)

    def run_worker(self, work: Any, *args: Any, keys_wait: bool = True, **options: Any) -> Worker[Any]:
        """Run what a key asked for; keys wait until it shows a screen or has ended.

        ``keys_wait=False`` is for what has the focus already and keeps keys itself, as a shell that opens.
        """
        if not keys_wait:
            return super().run_worker(work, *args, **options)
        wait = self._wait()

        async def watched() -> Any:
            try:
                return await (work() if callable(work) else work)
            finally:
                self._go_on(wait)

        return super().run_worker(watched(), *args, **options)

    def push_screen(self, screen: Screen[Any] | str, *args: Any, **options: Any) -> Any:
        """Show a screen; keys wait until it has its widgets and its focus."""
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
        self._waits[wait] = asyncio.get_running_loop().call_later(WAIT_S, self._give_up, wait)
        return wait

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
        self._typed.clear()
        self._go_on(wait)

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
