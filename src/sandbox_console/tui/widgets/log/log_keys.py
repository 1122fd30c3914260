"""The keys of a log: k9s's meanings where it has one."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from sandbox_console.tui.keys.page_keys import scoped

AGO = (("2", 1), ("3", 5), ("4", 15), ("5", 30), ("6", 60))
"""Keys, and how many minutes back each goes."""

LOG_KEYS: list[BindingType] = scoped(
    "logs",
    [
        Binding("up,k", "line(-1)", "Up", show=False),
        Binding("down,j", "line(1)", "Down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "Page down", show=False),
        Binding("left,h", "side(-1)", "Left", show=False),
        Binding("right,l", "side(1)", "Right", show=False),
        Binding("home,g,1", "head", "Oldest line", show=False),
        Binding("end,G,0", "tail", "Follow", show=False),
        Binding("s", "autoscroll", "Follow on/off", show=False),
        Binding("t", "timestamps", "Timestamps", show=False),
        Binding("w", "wrap", "Wrap", show=False),
        Binding("slash", "ask_search", "Search"),
        Binding("ampersand", "ask_filter", "Filter"),
        Binding("n", "next(1)", "Next match", show=False),
        Binding("N", "next(-1)", "Previous match", show=False),
        Binding("shift+up,K", "select(-1)", "Select line above", show=False),
        Binding("shift+down", "select(1)", "Select line below", show=False),
        Binding("enter,space", "expand", "JSON in full", show=False),
        Binding("J", "json", "JSON in short on/off", show=False),
        Binding("m", "mark", "Put a mark", show=False),
        Binding("M", "next_mark", "Mark before", show=False),
        Binding("c", "copy_line", "Copy the line", show=False),
        Binding("C", "copy_page", "Copy the page", show=False),
        Binding("p", "ask_gone", "Logs of removed ones", show=False),
        Binding("ctrl+s", "ask_save", "Save"),
        *(Binding(key, f"ago({minutes})", f"Last {minutes} min", show=False) for key, minutes in AGO),
    ],
)
