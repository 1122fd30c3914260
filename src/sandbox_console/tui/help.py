"""The help page: the keys that work in the current place, taken from the bindings themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from rich.cells import cell_len
from textual.binding import Binding
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen

from sandbox_console.errors import ConsoleError
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.tui.actions.availability import choices
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.keys.page_keys import NO_KEY
from sandbox_console.tui.text.formatting import sandbox_host, shown_name
from sandbox_console.tui.text.wrap import hanging
from sandbox_console.tui.widgets.table.table_layout import fit_cell

Part = tuple[str, str]

_TITLES = {
    "FleetTable": "In the list",
    "MarkedTable": "In the list",
    "BulkScreen": "In the results",
    "PulseScreen": "In pulse",
    "WhyScreen": "On this page",
    "TimelineScreen": "In the timeline",
    "AlertsScreen": "In the alerts",
    "KeptShellsScreen": "In the kept shells",
    "RecordingsScreen": "In the recordings",
    "PlayerScreen": "While playing",
    "RecordedScreen": "In copy mode",
    "StatsPane": "In the graphs",
    "Tree": "In the tree",
    "TabBar": "In the tabs",
    "LogView": "In the logs",
    "SpecPane": "In the spec",
    "EgressPane": "In the egress tab",
    "EgressScreen": "In the egress inbox",
    "ImagesScreen": "In the images",
    "SnapshotsScreen": "In the snapshots",
    "EgressDraftScreen": "In the draft",
    "TextArea": "While writing",
    "AuditScreen": "In the audit log",
    "ShellNotice": "In the shell tab",
    "TerminalView": "In copy mode",
    "ShellScreen": "On the shells page, after Ctrl+]",
    "Input": "In the line",
    "MainScreen": "Everywhere on this screen",
    "ConsoleApp": "Everywhere",
    "FilesPane": "In the files",
    "InspectPane": "In inspect",
    "CommandInput": "In the line of commands",
    "FormBase": "In the form",
    "ColumnsScreen": "In the columns",
    "ConfirmScreen": "In the question",
    "ChoiceScreen": "In the question",
    "MenuScreen": "In the menu",
    "TextScreen": "In the text",
    "EgressAskScreen": "In the question",
    "AskScreen": "In the question",
    "GoneScreen": "In the choice",
    "SessionScreen": "While attached",
}
"""Names by class. A class that is not listed has the name of its base class."""
HIDDEN = {
    "copy_text",
    "help_quit",
    "screen.copy_text",
    "app.help_quit",
    "suspend_process",
    "scroll_left",
    "scroll_right",
    "page_left",
    "page_right",
}
_WITH_OTHERS = ("super+", "alt+")
"""Modifiers that few terminals pass on. Their actions have another key."""
_EDITING = {
    "cursor_left_word": "Previous word", "cursor_right_word": "Next word", "home": "Start", "end": "End",
    "cursor_left(True)": "Select left", "cursor_right(True)": "Select right", "select_all": "Select all",
    "delete_left_word": "Delete previous word", "delete_right_word": "Delete next word",
    "delete_left_all": "Delete to the start", "delete_right_all": "Delete to the end",
    "cut": "Cut", "copy": "Copy", "paste": "Paste", "submit": "Done",
    "cursor_word_left": "Previous word", "cursor_word_right": "Next word", "cursor_line_start": "Start of line",
    "cursor_line_end": "End of line", "cursor_page_up": "Page up", "cursor_page_down": "Page down",
    "cursor_up(True)": "Select up", "cursor_down(True)": "Select down", "delete_word_left": "Delete previous word",
    "delete_to_start_of_line": "Delete to the start", "delete_to_end_of_line_or_delete_line": "Delete to the end",
    "undo": "Undo", "redo": "Redo",
}  # fmt: skip
"""Descriptions of Textual's own editing keys, by action. Well-known ones such as arrows are left out."""
_FOCUS = {"Focus Next": ("Next field", "Next pane"), "Focus Previous": ("Previous field", "Previous pane")}
"""Descriptions of Tab by Textual's own: where there are fields, and on other screens."""
_KEYS, _WHAT = 11, 20
_ENDLESS = 10_000
_MORE = (
    ("Terminal", "every key goes to the sandbox; Ctrl+] leaves, Shift+PgUp scrolls, the mouse selects and copies"),
    ("Filter", "text or regular expression, !inverse, -l key=value, -f fuzzy; Enter keeps it, Esc clears it"),
    (
        "Signs",
        "◇ not made by this console   ❯_ a shell is open   ↻ an action is in flight   ✓ marked   ⚠ mixed alphabets",
    ),
)


def help_words(screen: Screen[object], here: Sequence[Part] = ()) -> Callable[[int], Content]:
    """Return the current keys in sections, nearest first, as a function of the row's cells; 0 means no limit.

    ``here`` lists what does not work on the selected sandbox, from `unavailable`.
    """
    sections: dict[str, dict[str, list[str]]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        description = _description(active.node, binding)
        if not description or binding.action in HIDDEN or binding.key == NO_KEY:
            continue
        title = place_of(active.node)
        keys = sections.setdefault(title, {}).setdefault(description, [])
        if (words := key_words(screen.app.get_key_display(binding))) not in keys:
            keys.append(words)
    return partial(_laid_out, sections, here)


def _laid_out(sections: Mapping[str, Mapping[str, Sequence[str]]], here: Sequence[Part], width: int) -> Content:
    parts: list[Part] = []
    for title, lines in sections.items():
        parts.append((f"{title}\n", "bold $primary"))
        parts += _columns([(_fitting(keys), description) for description, keys in lines.items()], width or _ENDLESS)
        parts.append(("\n", ""))
    parts += hanging(here, width or _ENDLESS, 19)
    for description, text in _MORE:
        parts += hanging([(fit_cell(description, 10, "left"), "bold"), (f"{text}\n", "$dim")], width or _ENDLESS, 10)
    return Content.assemble(*parts)


def _description(node: DOMNode, binding: Binding) -> str:
    """Return what a key does, or an empty string if it is not listed, as for well-known editing keys."""
    if binding.description in _FOCUS:
        of_fields, elsewhere = _FOCUS[binding.description]
        return of_fields if place_of(node) == _TITLES["FormBase"] else elsewhere
    if (binding.action, binding.description) not in _own(type(node)):
        return binding.description
    return "" if binding.key.startswith(_WITH_OTHERS) else _EDITING.get(binding.action, "")


@cache
def _own(kind: type[DOMNode]) -> frozenset[tuple[str, str]]:
    """Return the editing actions that a widget inherits from Textual."""
    from textual.widgets import Input, TextArea  # TextArea takes 10 ms

    of = next((one for one in (Input, TextArea) if issubclass(kind, one)), None)
    known = [one for one in of.BINDINGS if isinstance(one, Binding)] if of else []
    return frozenset((one.action, one.description) for one in known)


def _fitting(keys: Sequence[str]) -> str:
    """Return as many of an action's keys as fit, but at least the first."""
    found = keys[0]
    for key in keys[1:]:
        found = f"{found} {key}" if len(found) + 1 + len(key) <= _KEYS else found
    return found


def place_of(node: DOMNode) -> str:
    """Return where the keys of a widget or a page work."""
    return next((_TITLES[kind.__name__] for kind in type(node).__mro__ if kind.__name__ in _TITLES), "Here")


async def unavailable(app: BaseApp, sandbox: Sandbox) -> list[Part]:
    """Return which actions a sandbox does not allow now, and which its backend does not support, with reasons."""
    lines = [
        (one.label, one.unfit)
        for one in await choices(app.service, sandbox, app.fleet.busy.get(sandbox.ref), app.keymap)
        if one.unfit
    ]
    parts = _reasons(f"Not for {shown_name(sandbox)} now", lines)
    try:
        can = await app.service.capabilities(sandbox.ref.backend, sandbox.ref.host)
    except ConsoleError as error:
        return [*parts, (f"{sandbox_host(sandbox)}: {clean(error.message, cap=300)}\n\n", "$text-error")]
    missing = [(str(one), can.reason(one)) for one in Capability if not can.has(one)]
    return [*parts, *_reasons(f"Unsupported by {sandbox_host(sandbox)} here", missing)]


def _reasons(title: str, lines: Sequence[tuple[str, str]]) -> list[Part]:
    if not lines:
        return []
    parts: list[Part] = [(f"{title}\n", "bold $text-warning")]
    for description, reason in lines:
        parts += [(fit_cell(description, 18, "left"), ""), (f" {clean(reason, cap=300)}\n", "$dim")]
    return [*parts, ("\n", "")]


def _columns(lines: list[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """Return two columns as wide as their contents, or one if there is no room for both."""
    longest = max(cell_len(description) for _, description in lines)
    room = _WHAT if longest <= _WHAT else longest + 1
    rows = (len(lines) + 1) // 2 if 2 * (_KEYS + 1 + room) <= width else len(lines)
    parts: list[tuple[str, str]] = []
    for row in range(rows):
        for keys, description in lines[row::rows]:
            parts += [(fit_cell(keys, _KEYS, "left"), "$text-accent"), (" " + fit_cell(description, room, "left"), "")]
        parts.append(("\n", ""))
    return parts


def key_words(display: str) -> str:
    """Return a key as people write it. Ctrl+Space reaches programs as NUL, whose other name is Ctrl+@."""
    if display == "^@":
        display = "^space"
    return display.replace("^", "Ctrl+") if len(display) > 1 and display.startswith("^") else display
