"""The palette: every action by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from textual.command import DiscoveryHit, Hit, Hits, Provider

from sandbox_console.tui.choices import choices
from sandbox_console.tui.safety import escaped, plain
from sandbox_console.tui.words import shown_name

if TYPE_CHECKING:
    from sandbox_console.tui.app import ConsoleApp

_GENERAL = (
    ("New sandbox", "create", "n", "Make a sandbox by a form"),
    ("Filter", "filter", "/", "Show only some sandboxes"),
    ("Logs", "tab('logs')", "l", "What the selected sandbox writes"),
    ("Spec", "tab('spec')", "y", "What was asked of it, and what holds"),
    ("Audit", "tab('audit')", "9", "What was done to it"),
    ("Pulse", "app.pulse", "u", "The whole fleet on one page"),
    ("Last bulk results", "app.bulk", "J", "What became of the last action on several"),
    ("Audit of the fleet", "app.audit", "h", "Everything that was done, and whether the log holds"),
    ("Egress", "tab('egress')", "o", "What it may reach and what it tried"),
    ("Egress inbox", "app.egress", "i", "What was denied in the whole fleet"),
    ("Detail full size", "fullscreen", "f", "The whole screen for the detail, or half of it"),
    ("Copy its ref", "copy", "c", "What the command line calls it"),
    ("Backends", "app.backends", "b", "Each one's health, with its reason"),
    ("Messages", "app.messages", "v", "Everything that was told"),
    ("Help", "app.help", "?", "The keys that work here"),
    ("Dark or light", "app.light", "", "Change the colours"),
    ("Quit", "app.quit", "q", "Leave; sandboxes live on"),
)


class _Command(NamedTuple):
    title: str
    action: str
    help: str


class ConsoleCommands(Provider):
    """Actions on the selected sandbox first, then the rest."""

    @property
    def _shown_app(self) -> ConsoleApp:
        app: ConsoleApp = self.app  # type: ignore[assignment]
        return app

    async def _commands(self) -> AsyncIterator[_Command]:
        app = self._shown_app
        sandbox = app.main.selected
        if sandbox is not None:
            for choice in await choices(app.service, sandbox, app.fleet.busy.get(sandbox.ref)):
                text = f"unavailable: {choice.unfit}" if choice.unfit else f"key {choice.key}"
                yield _Command(f"{choice.label} {shown_name(sandbox)}", choice.action, text)
        for title, action, key, text in _GENERAL:
            yield _Command(title, action, f"{text} (key {key})" if key else text)

    async def discover(self) -> Hits:
        async for title, action, text in self._commands():
            yield DiscoveryHit(plain(title), partial(self._run, action), text=escaped(title), help=escaped(text))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        async for title, action, text in self._commands():
            if score := matcher.match(title):
                yield Hit(
                    score=score, match_display=plain(title), command=partial(self._run, action),
                    text=escaped(title), help=escaped(text),
                )  # fmt: skip

    async def _run(self, action: str) -> None:
        await self._shown_app.main.run_action(action)
