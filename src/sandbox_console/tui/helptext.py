"""The keys that work where one is, as the bindings themselves say."""

from __future__ import annotations

from textual.content import Content
from textual.screen import Screen

from sandbox_console.tui.widgets.table_layout import fit_cell

_TITLES = {
    "FleetTable": "In the list",
    "MarkedTable": "In the list",
    "BulkScreen": "In the results",
    "LogView": "In the logs",
    "SpecPane": "In the spec",
    "EgressPane": "In the egress tab",
    "EgressScreen": "In the egress inbox",
    "AuditScreen": "In the audit log",
    "ShellNotice": "In the shell tab",
    "Input": "In the line",
    "MainScreen": "Everywhere on this screen",
    "ConsoleApp": "Everywhere",
}
_HIDDEN = {
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
_MORE = (
    ("Terminal", "every key goes to the sandbox; Ctrl+] leaves, Shift+PgUp scrolls"),
    ("Filter", "text or regular expression, !inverse, -l key=value, -f fuzzy; Enter keeps it, Esc clears it"),
    (
        "Signs",
        "◇ not made by this console   ❯_ a shell is open   ↻ an action is in flight",
    ),
)


def help_words(screen: Screen[object]) -> Content:
    """Sections of keys, nearest first."""
    sections: dict[str, dict[str, list[str]]] = {}
    for active in screen.active_bindings.values():
        binding = active.binding
        if not binding.description or binding.action in _HIDDEN:
            continue
        title = _TITLES.get(type(active.node).__name__, type(active.node).__name__)
        keys = sections.setdefault(title, {}).setdefault(binding.description, [])
        keys.append(key_words(screen.app.get_key_display(binding)))
    parts: list[tuple[str, str]] = []
    for title, lines in sections.items():
        parts.append((f"{title}\n", "bold $primary"))
        parts += _columns([(" ".join(keys), what) for what, keys in lines.items()])
        parts.append(("\n", ""))
    for what, text in _MORE:
        parts += [(fit_cell(what, 10, "left"), "bold"), (f"{text}\n", "$dim")]
    return Content.assemble(*parts)


def _columns(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    half = (len(lines) + 1) // 2
    parts: list[tuple[str, str]] = []
    for row in range(half):
        for keys, what in lines[row::half]:
            parts += [(fit_cell(keys, 12, "left"), "$text-accent"), (" " + fit_cell(what, 20, "left"), "")]
        parts.append(("\n", ""))
    return parts


def key_words(display: str) -> str:
    """A key as people write it."""
    return display.replace("^", "Ctrl+") if len(display) > 1 and display.startswith("^") else display
