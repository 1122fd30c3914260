"""The environment of the app behind a browser session: what the app needs, without the login token."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sandbox_console.errors import UsageError
from sandbox_console.service.config import is_setting
from sandbox_console.service.people.identity import VARIABLE
from sandbox_console.web.logins import TOKEN_VARIABLE

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV"),
        *("DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "KUBECONFIG"),
        *("MSB_HOME", "MSB_PATH", "MSB_LIBKRUNFW_PATH", "MSB_CONFIG_PATH", "MSB_BACKEND", "MSB_PROFILE"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "DBUS_SESSION_BUS_ADDRESS"),
        *("LC_ALL", "LC_CTYPE", "LC_MESSAGES", "LC_TIME", "LC_NUMERIC", "LC_COLLATE", "LC_MONETARY"),
        *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
        *("SANDBOX_CONSOLE_HOME", "SANDBOX_CONSOLE_CONFIG", "SANDBOX_CONSOLE_SERVER"),
    }
)
_TOUCH = "SANDBOX_CONSOLE_TOUCH"
_DRIVER = "sandbox_console.web.textual_driver:BrowserDriver"


def check_pass_env(names: Sequence[str], environment: Mapping[str, str] = os.environ) -> None:
    """Raise UsageError for a variable that cannot be passed on: it is not set, or it is the login token."""
    for name in names:
        if name == TOKEN_VARIABLE:
            raise UsageError(f"--pass-env: {name} is the login token, which the app never gets")
        if name == VARIABLE:
            raise UsageError(f"--pass-env: {name} says for whom a process works, which each login decides")
        if name not in environment:
            raise UsageError(f"--pass-env: {name!r} is not set here", hint="give a variable's name, never its value")


def app_environment(
    columns: int,
    rows: int,
    actor: str,
    *,
    person: str = "",
    by_touch: bool = False,
    more: Sequence[str] = (),
    environment: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The variables of one app process. ``more`` names those that the operator passes on.

    ``person`` says for whom it works; it is empty for whoever runs the server. With ``by_touch`` it draws for fingers.
    """
    kept = {name: value for name, value in environment.items() if is_needed(name) or name in more}
    kept.pop(TOKEN_VARIABLE, None)
    kept |= {VARIABLE: person} if person else {}
    kept |= {_TOUCH: "1"} if by_touch else {}
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


def is_needed(name: str) -> bool:
    """Whether the app gets a variable that was not requested."""
    return name in _NAMES or is_setting(name)
