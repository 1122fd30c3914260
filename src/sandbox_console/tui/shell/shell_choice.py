"""How a shell is opened: which one, as whom, where and with what environment; remembered for each sandbox."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from sandbox_console.errors import UsageError
from sandbox_console.model.action import OpenShell
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.secret import shown_value
from sandbox_console.tui.base.saved_json import read_saved, save

_KEPT = 500
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ShellChoice(Struct, frozen=True, omit_defaults=True):
    """What was chosen. Empty means the best shell, and the user, folder and environment of the spec.

    Without ``keep`` the configuration decides whether it is kept. With ``busybox`` the shell is brought.
    """

    shell: str = ""
    user: str = ""
    workdir: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    keep: bool = False
    busybox: bool = False

    def request(self, ref: SandboxRef, cols: int, rows: int) -> OpenShell:
        """Return the action that opens it."""
        return OpenShell(
            ref,
            self.shell or None,
            self.user or None,
            cols,
            rows,
            workdir=self.workdir or None,
            env=self.env,
            keep=True if self.keep else None,
        )


def parse_env(text: str) -> dict[str, str]:
    """Return the variables of a line such as ``LANG=C EDITOR='vim -R'``. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"environment: {error}", hint="quote a value as in NAME='two words'") from None
    pairs = [word.partition("=") for word in words]
    for name, equals, _ in pairs:
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(f"environment: {name!r} is no NAME=VALUE", hint="as in LANG=C EDITOR=vim")
    return {name: value for name, _, value in pairs}


def absolute(folder: str) -> None:
    """Raise UsageError unless a folder is absolute or empty."""
    if folder and not folder.startswith("/"):
        raise UsageError(f"folder: {folder!r} is not absolute", hint="begin it with /")


def env_line(env: Mapping[str, str]) -> str:
    """Return variables as a line that `parse_env` reads."""
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in env.items())


class ShellChoices:
    """The last choice of each sandbox, in ``shells.json`` of the state folder, without values that may be secret.

    ``secret`` says whether a text may be one.
    """

    def __init__(self, folder: Path, secret: Callable[[str], bool]) -> None:
        self._path = folder / "shells.json"
        self._secret = secret

    def of(self, ref: SandboxRef) -> ShellChoice:
        """Return the last choice for a sandbox."""
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.convert(self._kept().get(str(ref), {}), ShellChoice)
        return ShellChoice()

    def remember(self, ref: SandboxRef, choice: ShellChoice) -> None:
        """Store a choice. Raises OSError, and then the last one stays."""
        kept = self._kept()
        kept.pop(str(ref), None)
        texts = {name: "" for name in ("shell", "user", "workdir") if self._secret(getattr(choice, name))}
        env = {name: one for name, one in choice.env.items() if self._plain(name, one)}
        safe = structs.replace(choice, env=env, **texts)
        kept[str(ref)] = msgspec.to_builtins(safe)
        save(self._path, dict([*kept.items()][-_KEPT:]))

    def _kept(self) -> dict[str, dict[str, Any]]:
        return read_saved(self._path, lambda kept: all(isinstance(one, dict) for one in kept.values()))

    def _plain(self, name: str, value: str) -> bool:
        return shown_value(name, value) == value and not self._secret(name) and not self._secret(value)
