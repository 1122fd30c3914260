"""The keys of the main screen: k9s's meanings where it has one."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from sandbox_console.tui.panes.tabs import tab_keys
from sandbox_console.tui.rows import SORT_KEYS

MAIN_KEYS: list[BindingType] = [
    Binding("n", "create", "New"),
    Binding("e", "edit", "Edit"),
    Binding("m", "menu", "Actions"),
    Binding("slash", "filter", "Filter"),
    Binding("l", "tab('logs')", "Logs"),
    Binding("s", "shell", "Shell"),
    Binding("y,d", "tab('spec')", "Spec", show=False),
    Binding("o", "tab('egress')", "Egress", show=False),
    Binding("i", "app.egress", "Egress inbox", show=False),
    Binding("h", "app.audit", "Audit of the fleet", show=False),
    Binding("u", "app.pulse", "Pulse", show=False),
    *(Binding(digit, f"tab('{tab.id}')", tab.title, show=False) for digit, tab in tab_keys()),
    Binding("right_square_bracket", "step(1)", "Next tab", show=False),
    Binding("left_square_bracket", "step(-1)", "Tab before", show=False),
    Binding("t", "verb('start')", "Start", show=False),
    Binding("x", "verb('stop')", "Stop", show=False),
    Binding("r", "verb('restart')", "Restart", show=False),
    Binding("p", "pause", "Pause, resume", show=False),
    Binding("ctrl+k", "verb('kill')", "Kill", show=False),
    Binding("ctrl+d,delete", "verb('remove')", "Remove", show=False),
    Binding("f", "fullscreen", "Detail full size", show=False),
    Binding("c", "copy", "Copy its ref", show=False),
    Binding("L", "merge", "Logs of several", show=False),
    Binding("equals_sign", "compare", "Compare two", show=False),
    Binding("J", "app.bulk", "Last bulk results", show=False),
    Binding("vertical_line", "side", "Detail beside or under", show=False),
    Binding("plus", "share(1)", "More detail", show=False),
    Binding("minus", "share(-1)", "Less detail", show=False),
    Binding("b", "app.backends", "Backends", show=False),
    Binding("v", "app.messages", "Messages", show=False),
    Binding("escape", "back", "Back", show=False),
    Binding("ctrl+right_square_bracket", "leave_terminal", "Leave the shell; it stays open"),
    *(Binding(key, f"sort('{column}')", f"Sort: {column}", show=False) for key, column in SORT_KEYS.items()),
    Binding("question_mark", "app.help", "Help"),
    Binding("q", "app.quit", "Quit"),
]
