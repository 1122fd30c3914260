"""The keys of the list and the screen around it, with the same meanings as in k9s if it has them.

Each has the id that the config uses for it. The keys that move in a table have none and cannot be changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from textual.binding import Binding, BindingType

TAB_TITLES: Mapping[str, str] = {
    "logs": "Logs", "shell": "Shell", "spec": "Spec", "stats": "Stats", "processes": "Processes", "files": "Files",
    "egress": "Egress", "events": "Events", "audit": "Audit", "inspect": "Inspect",
}  # fmt: skip
"""The tabs of the detail by id, in order."""
SORT_KEYS: Mapping[str, str] = {
    "N": "name", "S": "state", "B": "backend", "H": "host", "K": "maker", "I": "image", "C": "cpu", "M": "memory",
    "T": "net", "W": "egress", "E": "secrets", "R": "restarts", "A": "age", "X": "exit",
}  # fmt: skip
"""Shift and a letter sort by a column."""


def tab_digits() -> Iterator[tuple[str, str]]:
    """Yield the digit that opens each tab, and the tab's id. The tenth has 0."""
    for number, tab in enumerate(TAB_TITLES, 1):
        yield str(number % 10), tab


def _key(id: str, keys: str, action: str, description: str, *, show: bool = False) -> Binding:
    return Binding(keys, action, description, show=show, id=id)


MAIN_KEYS: list[BindingType] = [
    _key("create", "n", "create", "New", show=True),
    _key("create-from", "ctrl+n", "create_from", "New from a template, line or file"),
    _key("edit", "e", "edit", "Edit", show=True),
    _key("menu", "m", "menu", "Actions", show=True),
    _key("filter", "slash", "filter", "Filter", show=True),
    _key("command", "colon", "command", "Command"),
    _key("faults", "z,ctrl+z", "faults", "Faults only"),
    _key("loudest", "number_sign", "loudest", "Loudest first"),
    _key("managed", "Z", "managed", "Only ours, or all"),
    _key("group", "ctrl+g", "group", "Group by"),
    _key("wide", "w,ctrl+w", "wide", "All columns"),
    _key("columns", "comma", "columns", "Columns"),
    _key("logs", "l", "tab('logs')", "Logs", show=True),
    _key("shell", "s", "shell", "Shell", show=True),
    _key("shell-choose", "percent_sign", "shell_choose", "Shell of your choice"),
    _key("shells", "dollar_sign", "shells", "All shells, splits"),
    _key("kept-shells", "tilde", "app.kept_shells", "Kept shells"),
    _key("recordings", "quotation_mark", "recordings", "Recordings"),
    _key("container", "underscore", "container", "Choose a container"),
    _key("copy-mode", "left_curly_bracket", "copy_mode", "Copy mode, search"),
    _key("spec", "y,d", "tab('spec')", "Spec"),
    _key("egress", "o", "tab('egress')", "Egress"),
    _key("egress-inbox", "i", "app.egress", "Egress inbox"),
    _key("egress-draft", "ctrl+e", "app.draft", "Draft egress rules"),
    _key("audit-log", "h", "app.audit", "Audit of the fleet"),
    _key("images", "P", "app.images", "Images"),
    _key("snapshots", "V", "app.snapshots", "Snapshots"),
    _key("pulse", "u", "app.pulse", "Pulse"),
    *(_key(f"tab-{tab}", digit, f"tab('{tab}')", TAB_TITLES[tab]) for digit, tab in tab_digits()),
    _key("next-tab", "right_square_bracket", "step(1)", "Next tab"),
    _key("previous-tab", "left_square_bracket", "step(-1)", "Previous tab"),
    _key("start", "t", "verb('start')", "Start"),
    _key("stop", "x", "verb('stop')", "Stop"),
    _key("restart", "r", "verb('restart')", "Restart"),
    _key("pause", "p", "pause", "Pause or resume"),
    _key("changes", "U", "changes", "Changed files"),
    _key("attach", "a,F", "attach", "Attach"),
    _key("rename", "ctrl+r", "name('rename')", "Rename"),
    _key("commit", "O", "name('commit')", "Commit to an image"),
    _key("snapshot", "D", "name('snapshot')", "Snapshot"),
    _key("kill", "ctrl+k", "verb('kill')", "Kill"),
    _key("remove", "ctrl+d,delete", "verb('remove')", "Remove"),
    _key("quarantine", "Q", "quarantine", "Quarantine or release"),
    _key("why", "full_stop", "why", "Why it ended"),
    _key("timeline", "semicolon", "timeline", "Timeline"),
    _key("alerts", "exclamation_mark", "app.alerts", "Alerts"),
    _key("reapply", "less_than_sign", "verb('reapply')", "Re-apply the spec"),
    _key("adopt", "greater_than_sign", "verb('adopt')", "Adopt what is found"),
    _key("fullscreen", "f", "fullscreen", "Detail full size"),
    _key("copy", "c", "copy", "Copy its ref"),
    _key("copy-address", "at", "copy_address", "Copy its address"),
    _key("copy-command", "Y", "copy_command", "Copy as command"),
    _key("merge-logs", "L", "merge", "Logs of several"),
    _key("compare", "equals_sign", "compare", "Compare two"),
    _key("bulk-results", "J", "app.bulk", "Last bulk results"),
    _key("side", "vertical_line", "side", "Detail beside or below"),
    _key("more-detail", "plus", "share(1)", "More detail"),
    _key("less-detail", "minus", "share(-1)", "Less detail"),
    _key("backends", "b", "app.backends", "Backends"),
    _key("messages", "v", "app.messages", "Messages"),
    _key("theme", "f2", "app.next_theme", "Next theme"),
    _key("back", "escape", "back", "Back"),
    Binding("ctrl+right_square_bracket", "leave_terminal", "Leave the shell; it stays open"),
    *(_key(f"sort-{column}", key, f"sort('{column}')", f"Sort: {column}") for key, column in SORT_KEYS.items()),
    _key("help", "question_mark", "app.help", "Help", show=True),
    _key("quit", "q", "app.quit", "Quit", show=True),
]

TABLE_KEYS: list[BindingType] = [
    Binding("up,k", "move(-1)", "Up", show=False),
    Binding("down,j", "move(1)", "Down", show=False),
    Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
    Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
    Binding("home,g", "go(0)", "First", show=False),
    Binding("end,G", "go(-1)", "Last", show=False),
    Binding("enter", "choose", "Open; fold a group", show=False),
    Binding("left", "sideways(-1)", "Close, left", show=False),
    Binding("right", "sideways(1)", "Open, right", show=False),
]
"""The keys of every table."""

MARK_KEYS: list[BindingType] = [
    _key("mark", "space", "mark", "Mark; fold a group"),
    _key("mark-range", "ctrl+@,ctrl+space", "mark_range", "Mark up to here"),
    _key("mark-all", "asterisk,ctrl+a", "mark_all", "Mark all shown"),
    _key("mark-down", "shift+down", "mark_step(1)", "Mark, go down"),
    _key("mark-up", "shift+up", "mark_step(-1)", "Mark, go up"),
    _key("unmark", "ctrl+backslash", "unmark", "Clear marks"),
]
"""The keys for marks in the list."""


def list_keys() -> Iterator[Binding]:
    """Yield the bindings of the list and the screen around it that a config can change."""
    for binding in (*MAIN_KEYS, *MARK_KEYS):
        if isinstance(binding, Binding) and binding.id:
            yield binding
