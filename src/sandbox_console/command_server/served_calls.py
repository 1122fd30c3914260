"""Decides which calls a command server may carry out. It is not in the client, whose import of sockets costs 6 ms."""

from __future__ import annotations

import os
import sys

SERVED = frozenset(
    {"ls", "show", "create", "update", "start", "stop", "kill", "restart", "pause", "resume", "rm", "exec", "cp"}
    | {"logs", "stats", "top", "diff", "port", "inspect", "events", "rename", "commit", "fork", "snapshot", "images"}
    | {"egress", "secrets", "audit", "recordings", "wait", "prune"}
)
"""Verbs that need no terminal of their own, so not the app, a shell, or a server."""

_FLAGS = ("debug", "inspect", "interactive", "optimize", "no_site", "verbose", "bytes_warning", "isolated", "dev_mode")


def may_serve(words: list[str]) -> bool:
    """Whether a server may carry out this call: a verb comes first, Python has no options, and it is not turned off."""
    return (
        bool(words)
        and words[0] in SERVED
        and sys.platform == "linux"
        and os.environ.get("SANDBOX_CONSOLE_SERVER", "").lower() not in ("off", "0", "false", "no")
        and not (sys.warnoptions or sys._xoptions or any(getattr(sys.flags, name) for name in _FLAGS))  # noqa: SLF001
    )
