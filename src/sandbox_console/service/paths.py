"""The folders of the console: its configuration, its state, and what is in them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import platformdirs
from msgspec import Struct

from sandbox_console.errors import ConfigError

_APP = "sandbox-console"
PREFIX = "SANDBOX_CONSOLE_"
"""How the console's own environment variables begin."""


class Paths(Struct, frozen=True):
    """Where the console keeps its files. ``state`` has mode 0700 and belongs to nobody else.

    ``templates`` is a folder of the user's own configuration, also if another ``config_file`` is named.
    """

    config_file: Path
    state: Path
    templates: Path = Path()

    def make_private(self) -> None:
        """Make the state folder, for its owner only. If that fails, reads still work; the first write reports it."""
        with contextlib.suppress(OSError):
            for folder in (*reversed(self.state.parents), self.state):  # with a mode of our own, whatever the umask
                if not folder.exists():
                    folder.mkdir(mode=0o700, exist_ok=True)

    @property
    def audit_db(self) -> Path:
        """The audit log."""
        return self.state / "audit" / "audit.db"

    @property
    def logs(self) -> Path:
        """Where logs of removed sandboxes are kept."""
        return self.state / "logs"

    @property
    def tokens(self) -> Path:
        """The tokens of the page, the API and MCP, as hashes."""
        return self.state / "tokens.json"

    def backend(self, name: str) -> Path:
        """The folder of one backend."""
        return self.state / "backends" / name


def find_paths(config_file: Path | None = None) -> Paths:
    """The user's folders, or those under SANDBOX_CONSOLE_HOME. Nothing is made."""
    home = os.environ.get(f"{PREFIX}HOME")
    base = Path(home).expanduser().absolute() if home else None
    named = config_file or os.environ.get(f"{PREFIX}CONFIG")
    try:
        folder = base or platformdirs.user_config_path(_APP)
        config = Path(named).expanduser() if named else folder / "config.toml"
        state = base / "state" if base else platformdirs.user_state_path(_APP)
    except RuntimeError:  # raised since platformdirs 4.5; before, the path kept its ~
        state = Path()
    if not state.is_absolute():
        raise ConfigError("this user has no home folder to keep state in", hint="set HOME or SANDBOX_CONSOLE_HOME")
    return Paths(config.absolute(), state, folder.absolute() / "templates")
