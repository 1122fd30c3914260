"""The colours of a log: lines by level, sources, and the status line."""

from __future__ import annotations

from sandbox_console.tui.widgets.log.log_page import COLOURS

_PARTS = (
    *("status", "following", "paused", "over", "prefix", "gap", "mark", "key"),
    *("error", "fatal", "warn", "quiet", "info", "ok", "accent"),
)
LOG_PARTS = {f"log--{name}" for name in (*_PARTS, *(f"name-{at}" for at in range(COLOURS)))}
"""The component classes that `LOG_CSS` colours."""

LOG_CSS = """
LogCanvas { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; }
LogCanvas > .log--status { background: $panel; color: $text-muted; }
LogCanvas > .log--following { color: $text-success; text-style: bold; }
LogCanvas > .log--paused { color: $text-warning; text-style: bold; }
LogCanvas > .log--over { color: $text; text-style: bold; }
LogCanvas > .log--error { color: $text-error; }
LogCanvas > .log--fatal { color: $text-error; text-style: bold reverse; }
LogCanvas > .log--warn { color: $text-warning; }
LogCanvas > .log--quiet { color: $text-muted; }
LogCanvas > .log--info { color: $text-success; }
LogCanvas > .log--ok { color: $text-success; }
LogCanvas > .log--accent { color: $text-accent; text-style: bold; }
LogCanvas > .log--key { color: $text-accent; }
LogCanvas > .log--gap { color: $text-warning; text-style: italic; }
LogCanvas > .log--mark { color: $text-primary; text-style: bold; }
LogCanvas > .log--prefix { color: $text-muted; }
LogCanvas > .log--name-0 { color: $text-primary; }
LogCanvas > .log--name-1 { color: $text-success; }
LogCanvas > .log--name-2 { color: $text-warning; }
LogCanvas > .log--name-3 { color: $text-accent; }
LogCanvas > .log--name-4 { color: $text-error; }
LogCanvas > .log--name-5 { color: $text-secondary; }
"""
