"""The keys inside logs, tabs and pages. The configuration changes a key by its id, such as ``logs-wrap``.

Ids are written here and never derived from labels, because users have them in ``[tui.keys]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from textual.binding import Binding, BindingType

from sandbox_console.tui.keys.main_keys import TABLE_KEYS, list_keys


def _key(id: str, keys: str, action: str, description: str, *, show: bool = True, priority: bool = False) -> Binding:
    return Binding(keys, action, description, show=show, priority=priority, id=id)


AGO = (1, 5, 15, 30, 60)
"""The times, in minutes, that a key can go back in a log."""
NO_KEY = "no-key"
"""The placeholder for an action without a key. Digits belong to the tabs, in every tab."""

PAGE_KEYS: Mapping[str, list[BindingType]] = {
    "logs": [
        _key("logs-up", "up,k", "line(-1)", "Up", show=False),
        _key("logs-down", "down,j", "line(1)", "Down", show=False),
        _key("logs-page-up", "pageup,ctrl+b", "page(-1)", "Page up", show=False),
        _key("logs-page-down", "pagedown,ctrl+f", "page(1)", "Page down", show=False),
        _key("logs-left", "left,h", "side(-1)", "Left", show=False),
        _key("logs-right", "right,l", "side(1)", "Right", show=False),
        _key("logs-first-line", "home,g", "head", "Oldest line", show=False),
        _key("logs-follow", "end,G", "tail", "Follow", show=False),
        _key("logs-toggle-follow", "s", "autoscroll", "Follow on/off", show=False),
        _key("logs-timestamps", "t", "timestamps", "Timestamps", show=False),
        _key("logs-wrap", "w", "wrap", "Wrap", show=False),
        _key("logs-search", "slash", "ask_search", "Search"),
        _key("logs-filter", "ampersand", "ask_filter", "Filter"),
        _key("logs-next-match", "n", "next(1)", "Next match", show=False),
        _key("logs-previous-match", "N", "next(-1)", "Previous match", show=False),
        _key("logs-select-up", "shift+up,K", "select(-1)", "Select line above", show=False),
        _key("logs-select-down", "shift+down", "select(1)", "Select line below", show=False),
        _key("logs-expand-json", "enter,space", "expand", "JSON in full", show=False),
        _key("logs-compact-json", "J", "json", "JSON in short on/off", show=False),
        _key("logs-mark", "m", "mark", "Put a mark", show=False),
        _key("logs-previous-mark", "M", "next_mark", "Previous mark", show=False),
        _key("logs-copy-line", "c", "copy_line", "Copy the line", show=False),
        _key("logs-copy-page", "C", "copy_page", "Copy the page", show=False),
        _key("logs-removed", "p", "ask_gone", "Logs of removed sandboxes", show=False),
        _key("logs-save", "ctrl+s", "ask_save", "Save"),
        *(_key(f"logs-last-{one}-min", NO_KEY, f"ago({one})", f"Last {one} min", show=False) for one in AGO),
        _key("logs-clear", "escape", "clear_pattern", "End search, filter", show=False),
        _key("logs-ago", "T", "ago_more", "Last 1, 5, 15… min", show=False),
    ],
    "spec": [
        _key("spec-up", "k", "scroll_up", "Up", show=False),
        _key("spec-down", "j", "scroll_down", "Down", show=False),
        _key("spec-top", "g", "scroll_home", "Top", show=False),
        _key("spec-end", "G", "scroll_end", "End", show=False),
    ],
    "inspect": [
        _key("inspect-search", "slash", "ask_search", "Search"),
        _key("inspect-next-match", "n", "next(1)", "Next match", show=False),
        _key("inspect-previous-match", "N", "next(-1)", "Previous match", show=False),
        _key("inspect-raw", "r", "raw", "Raw or tree"),
        _key("inspect-refresh", "R", "again", "Refresh", show=False),
    ],
    "files": [
        _key("files-parent", "backspace,h,left", "up", "Folder above", show=False),
        _key("files-download", "D", "ask('download')", "Download"),
        _key("files-upload", "U", "ask('upload')", "Upload"),
        _key("files-go-to", "P", "ask('go')", "Go to a path", show=False),
        _key("files-refresh", "R", "again", "Refresh", show=False),
    ],
    "hosts": [
        _key("hosts-allow", "a", "allow", "Allow"),
        _key("hosts-deny", "d", "deny", "Deny"),
        _key("hosts-denials-only", "o", "denials", "Denials only/all"),
        _key("hosts-draft", "ctrl+e", "draft", "Draft"),
    ],
    "draft": [
        _key("draft-allow-host", "a", "add('allow')", "Allow host"),
        _key("draft-deny-host", "d", "add('deny')", "Deny host"),
        _key("draft-changes-only", "o", "changes", "Changes only/all"),
        _key("draft-apply", "ctrl+s", "apply", "Apply", priority=True),
        _key("draft-as-commands", "ctrl+o", "commands", "As commands", priority=True),
        _key("draft-start-over", "ctrl+r", "reset", "Start over", priority=True),
        _key("draft-back", "escape", "close", "Back"),
        _key("draft-help", "question_mark,f1", "app.help", "Help"),
    ],
    "columns": [
        _key("columns-toggle", "space,enter", "show", "Show or hide"),
        _key("columns-up", "shift+up,K", "shift(-1)", "Up"),
        _key("columns-down", "shift+down,J", "shift(1)", "Down"),
        _key("columns-narrower", "minus,left", "size(-1)", "Narrower"),
        _key("columns-wider", "plus,right,equals_sign", "size(1)", "Wider"),
        _key("columns-reset-width", "0", "own", "Automatic width"),
        _key("columns-defaults", "u", "usual", "Default columns"),
        _key("columns-done", "escape,q,comma", "done", "Done"),
    ],
    "form": [
        _key("form-submit", "ctrl+s", "submit", "Create/Apply", priority=True),
        _key("form-close", "escape", "close", "Close"),
        _key("form-next-field", "down", "app.focus_next", "Next field"),
        _key("form-previous-field", "up", "app.focus_previous", "Previous field", show=False),
        _key("form-preview", "f2", "preview", "Command and TOML"),
        _key("form-next-problem", "f3", "next_problem", "Next problem", show=False),
        _key("form-copy", "ctrl+y", "copy", "Copy the command", show=False, priority=True),
        _key("form-save", "f4", "save", "Save as TOML", show=False),
        _key("form-pin", "f5", "pin", "Pin the image's digest", show=False),
        _key("form-pull", "ctrl+l", "pull", "Pull the image, cancel", show=False, priority=True),
        _key("form-network", "f6", "network", "Add a host", show=False),
        _key("form-new-secret", "f7", "new_secret", "New secret", show=False),
        _key("form-presets", "f8", "presets", "Hosts from presets", show=False),
        _key("form-denials", "f9", "denials", "Hosts from denials", show=False),
        _key("form-start-over", "ctrl+r", "start_over", "Start over", show=False, priority=True),
    ],
    "entries": [
        _key("entries-tick", "space", "tick", "Tick"),
        _key("entries-remove", "delete,backspace", "remove", "Remove"),
    ],
    "why": [
        _key("why-up", "k", "scroll(-1)", "Up", show=False),
        _key("why-down", "j", "scroll(1)", "Down", show=False),
        _key("why-timeline", "semicolon", "timeline", "Timeline"),
        _key("why-quarantine", "Q", "quarantine", "Quarantine or release"),
        _key("why-refresh", "R", "again", "Refresh", show=False),
        _key("why-copy-command", "Y", "copy", "Copy as command"),
        _key("why-back", "escape,q,full_stop", "dismiss", "Back"),
        _key("why-help", "question_mark", "app.help", "Help"),
    ],
    "timeline": [
        _key("timeline-filter", "slash", "filter", "Filter"),
        _key("timeline-in", "plus", "zoom(1)", "Zoom in"),
        _key("timeline-out", "minus", "zoom(-1)", "Zoom out"),
        _key("timeline-trouble-only", "x", "trouble", "Trouble only"),
        _key("timeline-log", "l", "log", "Log at this time"),
        _key("timeline-recording", "p", "recording", "Recorded shell"),
        _key("timeline-refresh", "R", "again", "Refresh", show=False),
        _key("timeline-copy-command", "Y", "copy", "Copy as command", show=False),
        _key("timeline-back", "escape", "back", "Back"),
        Binding("q,semicolon", "dismiss", "Back", show=False),
        _key("timeline-help", "question_mark", "app.help", "Help"),
    ],
    "recordings": [
        _key("recordings-play", "enter", "play", "Play"),
        _key("recordings-search", "slash", "search", "Search in all"),
        _key("recordings-all", "s", "all", "This sandbox or all"),
        _key("recordings-refresh", "R", "again", "Refresh", show=False),
        _key("recordings-copy-command", "Y", "copy_command", "Copy as command", show=False),
        _key("recordings-back", "escape", "back", "Back"),
        Binding("q,quotation_mark", "dismiss", "Back", show=False),
        _key("recordings-help", "question_mark", "app.help", "Help"),
    ],
    "kept": [
        _key("kept-attach", "enter", "attach", "Attach"),
        _key("kept-watch", "w", "watch", "Watch only"),
        _key("kept-end", "x,ctrl+d,delete", "end", "End"),
        _key("kept-copy-command", "Y", "copy_command", "Copy as command", show=False),
        _key("kept-back", "escape,q,tilde", "dismiss", "Back"),
        _key("kept-help", "question_mark", "app.help", "Help"),
    ],
    "player": [
        _key("player-play", "space,enter", "play", "Play or pause"),
        _key("player-back-5", "left,h", "seek(-5)", "5 s back"),
        _key("player-on-5", "right,l", "seek(5)", "5 s on"),
        _key("player-back-60", "pageup,left_square_bracket", "seek(-60)", "A minute back", show=False),
        _key("player-on-60", "pagedown,right_square_bracket", "seek(60)", "A minute forward", show=False),
        _key("player-start", "home,g", "edge(0)", "Beginning", show=False),
        _key("player-end", "end,G", "edge(1)", "End", show=False),
        *(Binding(str(tenth), f"tenth({tenth})", show=False) for tenth in range(10)),
        _key("player-step", "full_stop", "next_change", "Next change", show=False),
        _key("player-faster", "greater_than_sign,plus", "speed(1)", "Faster"),
        _key("player-slower", "less_than_sign,minus", "speed(-1)", "Slower"),
        _key("player-idle", "i", "idle", "Skip idle on/off", show=False),
        _key("player-search", "slash", "search", "Search"),
        _key("player-next-match", "n", "next_match(1)", "Next match"),
        _key("player-previous-match", "N", "next_match(-1)", "Previous match", show=False),
        _key("player-scroll-up", "up,k", "scroll(0, -1)", "Scroll up", show=False),
        _key("player-scroll-down", "down,j", "scroll(0, 1)", "Scroll down", show=False),
        _key("player-scroll-left", "H", "scroll(-8, 0)", "Scroll left", show=False),
        _key("player-scroll-right", "L", "scroll(8, 0)", "Scroll right", show=False),
        _key("player-copy-mode", "left_curly_bracket", "copy_mode", "Copy mode", show=False),
        _key("player-copy-command", "Y", "copy_command", "Copy as command", show=False),
        _key("player-close", "escape,q", "dismiss", "Back"),
        _key("player-help", "question_mark", "app.help", "Help"),
    ],
    "alerts": [
        _key("alerts-silence", "s", "silence", "Silence or unsilence"),
        _key("alerts-resolved", "o", "resolved", "Firing only/all"),
        _key("alerts-go-to-sandbox", "enter", "go", "Go to the sandbox"),
        _key("alerts-why", "full_stop", "why", "Why it ended"),
        _key("alerts-test", "t", "test", "Test the channels", show=False),
        _key("alerts-back", "escape,q,exclamation_mark", "dismiss", "Back"),
        _key("alerts-help", "question_mark", "app.help", "Help"),
    ],
    "pulse": [
        _key("pulse-backends", "b", "app.backends", "Backends"),
        _key("pulse-egress-inbox", "i", "app.egress", "Egress inbox"),
        _key("pulse-audit", "h", "app.audit", "Audit"),
        _key("pulse-back", "escape,q,u", "dismiss", "Back"),
        _key("pulse-help", "question_mark", "app.help", "Help"),
        _key("pulse-alerts", "exclamation_mark", "app.alerts", "Alerts"),
    ],
    "results": [
        _key("results-again", "r", "again", "Try again"),
        _key("results-stop", "x", "stop", "Start no more"),
        _key("results-copy", "c", "copy", "Copy"),
        _key("results-back", "escape,q,J", "leave", "Back"),
        _key("results-help", "question_mark", "app.help", "Help"),
    ],
    "audit": [
        _key("audit-filter", "slash", "filter", "Filter"),
        _key("audit-trouble-only", "x", "trouble", "Trouble only"),
        _key("audit-go-to-sandbox", "s", "go", "Go to the sandbox"),
        _key("audit-verify", "v", "verify", "Verify"),
        _key("audit-older", "o", "older", "Older"),
        _key("audit-back", "escape", "back", "Back"),
        Binding("h,q", "dismiss", "Back", show=False),
        _key("audit-help", "question_mark", "app.help", "Help"),
    ],
    "images": [
        _key("images-pull", "p", "pull", "Pull"),
        _key("images-cancel-pull", "x", "cancel_pull", "Cancel a pull"),
        _key("images-remove", "ctrl+d,delete", "remove", "Remove"),
        _key("images-prune", "P", "prune", "Prune"),
        _key("images-copy-name", "c", "copy_name", "Copy its name", show=False),
    ],
    "shells": [
        _key("shells-type", "enter,i", "type", "Type"),
        _key("shells-new", "n,c", "new", "New"),
        _key("shells-choose", "N", "choose", "New, with choices", show=False),
        _key("shells-beside", "vertical_line,percent_sign", "split(1)", "Beside"),
        _key("shells-below", "minus,quotation_mark", "split(0)", "Below"),
        _key("shells-other", "o", "other", "Other sandbox"),
        _key("shells-other-beside", "O", "other(1)", "Other beside", show=False),
        _key("shells-next", "w,tab", "step(1)", "Next"),
        _key("shells-previous", "W,shift+tab", "step(-1)", "Previous shell", show=False),
        _key("shells-left", "left,h", "go(-1, 0)", "Shell on the left", show=False),
        _key("shells-right", "right,l", "go(1, 0)", "Shell on the right", show=False),
        _key("shells-up", "up,k", "go(0, -1)", "Shell above", show=False),
        _key("shells-down", "down,j", "go(0, 1)", "Shell below", show=False),
        _key("shells-next-tab", "right_square_bracket", "tab(1)", "Next tab", show=False),
        _key("shells-previous-tab", "left_square_bracket", "tab(-1)", "Previous tab", show=False),
        *(Binding(str(at), f"tab_number({at})", show=False) for at in range(1, 10)),
        _key("shells-close", "x", "close_shell", "Close"),
        _key("shells-zoom", "z", "zoom", "Zoom"),
        _key("shells-bigger", "plus,greater_than_sign", "resize(1)", "Bigger", show=False),
        _key("shells-smaller", "less_than_sign", "resize(-1)", "Smaller", show=False),
        _key("shells-own-tab", "exclamation_mark", "own_tab", "To a tab of its own", show=False),
        _key("shells-join", "J", "join", "To the previous tab", show=False),
        _key("shells-rename", "comma,r", "rename_tab", "Name the tab", show=False),
        _key("shells-copy-mode", "left_curly_bracket", "copy_mode(0)", "Copy mode"),
        _key("shells-search", "slash", "copy_mode(1)", "Search"),
        _key("shells-mark", "space", "mark", "Mark", show=False),
        _key("shells-mark-all", "asterisk", "mark_all", "Mark all or none", show=False),
        _key("shells-broadcast", "b", "broadcast", "Broadcast"),
        Binding("ctrl+right_square_bracket", "keys", "Keys of this page"),
        Binding("ctrl+right_square_bracket", "literal", "Send Ctrl+]", show=False),
        _key("shells-back", "escape,q,d,dollar_sign", "leave", "Back"),
        _key("shells-help", "question_mark", "app.help", "Help"),
    ],
    "copy": [
        _key("copy-left", "left,h", "copy_move(-1, 0)", "Left", show=False),
        _key("copy-right", "right,l", "copy_move(1, 0)", "Right", show=False),
        _key("copy-up", "up,k", "copy_move(0, -1)", "Up", show=False),
        _key("copy-down", "down,j", "copy_move(0, 1)", "Down", show=False),
        _key("copy-page-up", "pageup,ctrl+b", "copy_page(-1)", "Page up", show=False),
        _key("copy-page-down", "pagedown,ctrl+f", "copy_page(1)", "Page down", show=False),
        _key("copy-half-up", "ctrl+u", "copy_page(-0.5)", "Half a page up", show=False),
        _key("copy-half-down", "ctrl+d", "copy_page(0.5)", "Half a page down", show=False),
        _key("copy-next-word", "w", "copy_word(1)", "Next word", show=False),
        _key("copy-previous-word", "b", "copy_word(-1)", "Previous word", show=False),
        _key("copy-word-end", "e", "copy_word(0)", "End of the word", show=False),
        _key("copy-line-start", "home,0", "copy_go('start')", "Start of the line", show=False),
        _key("copy-line-end", "end,dollar_sign", "copy_go('end')", "End of the line", show=False),
        _key("copy-oldest", "g", "copy_go('oldest')", "Oldest line", show=False),
        _key("copy-newest", "G", "copy_go('newest')", "Newest line", show=False),
        _key("copy-top", "H", "copy_go('top')", "Top of the screen", show=False),
        _key("copy-middle", "M", "copy_go('middle')", "Middle of the screen", show=False),
        _key("copy-bottom", "L", "copy_go('bottom')", "Bottom of the screen", show=False),
        _key("copy-select", "v,space", "copy_select('cells')", "Select"),
        _key("copy-select-lines", "V", "copy_select('lines')", "Lines"),
        _key("copy-select-block", "ctrl+v", "copy_select('block')", "Block"),
        _key("copy-other-end", "o", "copy_other_end", "Other end", show=False),
        _key("copy-text", "y,enter", "copy_text", "Copy"),
        _key("copy-search", "slash", "copy_search", "Search"),
        _key("copy-older-match", "n", "copy_match(-1)", "Older match", show=False),
        _key("copy-newer-match", "N", "copy_match(1)", "Newer match", show=False),
        _key("copy-links", "f", "copy_links", "Links"),
        _key("copy-leave", "escape,q,i", "copy_leave", "Leave"),
        _key("copy-help", "question_mark", "copy_help", "Help"),
    ],
    "snapshots": [
        _key("snapshots-take", "n", "take", "Snapshot the selected sandbox"),
        _key("snapshots-restore", "enter", "restore", "Restore"),
        _key("snapshots-remove", "ctrl+d,delete", "remove", "Remove"),
    ],
}
"""The keys of each scope. ``hosts`` is for the egress tab and the inbox, ``results`` for a bulk action's page."""

_TABLES = {
    "files",
    "hosts",
    "draft",
    "results",
    "audit",
    "images",
    "snapshots",
    "timeline",
    "alerts",
    "recordings",
    "kept",
}


def scope_of(action: str) -> str:
    """Return the scope of an action's id, or an empty string for one of the list."""
    scope, dash, _ = action.partition("-")
    ours = (
        dash and scope in PAGE_KEYS and not any(binding.id == action for binding in list_keys())
    )  # audit-log is a list key
    return scope if ours else ""


def named(scope: str) -> Iterator[Binding]:
    """Yield the bindings of a scope that a config can change."""
    for binding in PAGE_KEYS[scope]:
        if isinstance(binding, Binding) and binding.id:
            yield binding


def taken(scope: str) -> dict[str, str]:
    """Return the fixed keys of a scope: those without an id, and those that its table or tree handles first."""
    fixed = [one for one in PAGE_KEYS[scope] if isinstance(one, Binding) and not one.id]
    found = {key: one.description or one.action for one in fixed for key in one.key.split(",")}
    for one in _inside(scope):
        if isinstance(one, Binding):
            found |= dict.fromkeys(one.key.split(","), f"moving about ({one.description})")
    return found


def _inside(scope: str) -> list[BindingType]:
    from textual.widgets import Tree

    return TABLE_KEYS if scope in _TABLES else Tree.BINDINGS if scope == "inspect" else []
