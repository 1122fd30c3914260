"""The environment of the app behind a browser session: what it needs, and not the login token."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sandbox_console.web.logins import TOKEN_VARIABLE

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV"),
        *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "KUBECONFIG"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    }
)
_PREFIXES = ("LC_", "XDG_", "SANDBOX_CONSOLE_")
_DRIVER = "sandbox_console.web.driver:BrowserDriver"


def app_environment(
    columns: int,
    rows: int,
    actor: str,
    *,
    more: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The variables of one app process; ``more`` names those that the operator passes on."""
    kept = {name: value for name, value in environment.items() if _is_needed(name) or name in more}
    kept.pop(TOKEN_VARIABLE, None)
    return kept | {
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "TERM_PROGRAM": "sandbox-console",
        "TEXTUAL_DRIVER": _DRIVER,
        "TEXTUAL_FPS": "60",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "COLUMNS": str(columns),
        "ROWS": str(rows),
        "SANDBOX_CONSOLE_ACTOR": actor,
    }


def _is_needed(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)
