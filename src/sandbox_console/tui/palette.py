"""The palette: every action by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import NamedTuple

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.widget import Widget
from textual.widgets import Input

from sandbox_console.tui.actions.availability import choices
from sandbox_console.tui.app_parts import AppParts
from sandbox_console.tui.base.safety import escaped, plain
from sandbox_console.tui.base.themes import THEMES
from sandbox_console.tui.help import HIDDEN, key_words, place_of
from sandbox_console.tui.keys.key_names import short_key
from sandbox_console.tui.keys.main_keys import MARK_KEYS, list_keys
from sandbox_console.tui.keys.page_keys import NO_KEY
from sandbox_console.tui.state.verbs import NAMINGS, VERBS
from sandbox_console.tui.text.formatting import shown_name

_TOLD = {
    "create": ("New sandbox", "Create a sandbox with a form"),
    "filter": ("Filter", "Show only some sandboxes"),
    "logs": ("Logs", "What the selected sandbox writes"),
    "spec": ("Spec", "Its spec, and what is in effect"),
    "tab-audit": ("Audit", "What was done to it"),
    "shell-choose": ("Shell of your choice", "Which shell, as whom, where and with what environment"),
    "copy-mode": ("Copy mode", "Copy from the shell, or search in it"),
    "shells": ("All shells", "Every open shell in tabs and splits"),
    "audit-log": ("Audit of the fleet", "Everything that was done, and whether the log is intact"),
    "egress": ("Egress", "What it may reach and what it tried"),
    "egress-inbox": ("Egress inbox", "What was denied in the whole fleet"),
    "images": ("Images", "What sandboxes are made of: pull, remove, prune"),
    "snapshots": ("Snapshots", "Saved states: take, restore, remove"),
    "egress-draft": ("Draft of egress rules", "Try rules on what it asked for, then apply them"),
    "pulse": ("Pulse", "The whole fleet on one page"),
    "kept-shells": ("Kept shells", "Shells that outlive the console: attach, watch, end"),
    "recordings": ("Recordings", "Recorded shells: play, search"),
    "alerts": ("Alerts", "What the rules found, and messages that have not arrived"),
    "why": ("Why it ended", "The verdict on the selected sandbox, with the evidence"),
    "timeline": ("Timeline", "What happened to the marked sandboxes or the selected one"),
    "bulk-results": ("Last bulk results", "Results of the last action on several"),
    "fullscreen": ("Detail full size", "The whole screen for the detail, or half of it"),
    "copy": ("Copy its ref", "What the command line calls it"),
    "copy-address": ("Copy its address", "http://ADDRESS:PORT of the first port that it publishes"),
    "copy-command": ("Copy as command", "The command line that does the same"),
    "backends": ("Backends", "Each one's health, with its reason"),
    "messages": ("Messages", "All messages so far"),
    "help": ("Help", "The keys that work here"),
    "quit": ("Quit", "Leave; sandboxes keep running"),
}
_ELSEWHERE = {"shell", "attach", "changes", "edit", *VERBS, *NAMINGS, "back"}
"""Actions that are offered with the selected sandbox's name, or that make no sense in a palette."""


_MOVES = (
    "choose", "line(", "page(", "page_", "side(", "scroll", "cursor_", "go(", "move(", "sideways(", "step(", "shift(",
    "delete_",
)  # fmt: skip
"""Prefixes of actions that have only keys, as nobody looks for them by name."""


class _Command(NamedTuple):
    title: str
    action: str
    help: str
    node: Widget | None = None
    """The node that the action belongs to. None means the list's screen."""


class ConsoleCommands(Provider):
    """On the list: actions on the selected sandbox, then all others. On other pages: their own and the app's.

    On another page, the list's actions would run unseen behind it.
    """

    @property
    def _shown_app(self) -> AppParts:
        app = self.app
        assert isinstance(app, AppParts)  # noqa: S101 - as textual.getters does for widgets
        return app

    async def _commands(self) -> AsyncIterator[_Command]:
        app = self._shown_app
        sandbox = app.main.selected if self.screen is app.main else None
        if sandbox is not None:
            for choice in await choices(app.service, sandbox, app.fleet.busy.get(sandbox.ref), app.keymap):
                key = f"key {short_key(choice.key)}" if choice.key else ""
                text = f"unavailable: {choice.unfit}" if choice.unfit else key
                yield _Command(f"{choice.label} {shown_name(sandbox)}", choice.action, text)
        for command in (*self._here(), *self._general()):
            yield command

    def _here(self) -> Iterator[_Command]:
        """Yield the actions of the focused widget, its tab and its page."""
        app, general = self._shown_app, {binding.id for binding in list_keys()}
        seen: set[tuple[str, str]] = set()
        for node, binding, enabled, _ in self.screen.active_bindings.values():
            plain_move = binding.action.removeprefix("screen.").startswith(_MOVES) or binding.action in HIDDEN
            if not binding.description or not enabled or plain_move or binding.id in general:
                continue
            where = place_of(node)
            if not isinstance(node, Widget) or isinstance(node, Input) or binding.action.startswith("app."):
                continue
            if (where, binding.description) not in seen:  # only once, not for each of its keys
                seen.add((where, binding.description))
                key = "" if binding.key == NO_KEY else f" (key {key_words(app.get_key_display(binding))})"
                yield _Command(binding.description, binding.action, f"{where}{key}", node)

    def _general(self) -> Iterator[_Command]:
        app = self._shown_app
        on_table = {one.id for one in MARK_KEYS if isinstance(one, Binding)}
        for binding in list_keys():
            if binding.id is None or binding.id in _ELSEWHERE:
                continue
            if self.screen is not app.main and not binding.action.startswith("app."):
                continue
            title, about = _TOLD.get(binding.id, (binding.description, ""))
            key = short_key(app.keymap.first(binding.id)) if self.screen is app.main else ""
            text = " ".join(filter(None, [about, f"(key {key})" if key else ""]))
            yield _Command(title, binding.action, text, app.main.table if binding.id in on_table else None)
        for theme in THEMES:
            yield _Command(f"Theme {theme.name}", f"app.use_theme('{theme.name}')", "Change the colours")

    async def discover(self) -> Hits:
        async for command in self._commands():
            run = partial(self._run, command)
            yield DiscoveryHit(plain(command.title), run, text=escaped(command.title), help=escaped(command.help))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        async for command in self._commands():
            if score := matcher.match(command.title):
                yield Hit(
                    score=score, match_display=plain(command.title), command=partial(self._run, command),
                    text=escaped(command.title), help=escaped(command.help),
                )  # fmt: skip

    async def _run(self, command: _Command) -> None:
        node = command.node or self._shown_app.main
        if node.is_attached:  # its page may have closed in the meantime
            await node.run_action(command.action)
