"""Completion for bash, zsh and fish: verbs and options from the parser, names and labels from the live sandboxes."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

from sandbox_console.cli import parser

LIST_S = 1.0
"""How long the list of sandboxes may take before a Tab does without it and uses the names that were last seen."""

_PLAIN = re.compile(r"[\w.@%+=:,/-]+")
_COMMAND = "sandbox-console"


def shell_code(shell: str) -> str:
    """The code that a shell reads to complete the command."""
    from argcomplete.shell_integration import shellcode

    return str(shellcode([_COMMAND], shell=shell)).strip() + "\n"


def complete() -> None:
    """Answer a shell's request for completions, which is in the environment, and exit. Changes and records nothing."""
    import argcomplete

    root = parser.build()
    for verb, action in _actions(root):
        if verb in _OWN_NAMES and action.metavar == "NAME":
            action.completer = _OWN_NAMES[verb]  # type: ignore[attr-defined]
        elif action.metavar == "NAME" and action.dest in ("name", "names", "words"):
            action.completer = _names  # type: ignore[attr-defined]
        elif verb == "cp" and action.metavar in ("SRC", "DST"):
            action.completer = _files_or_names  # type: ignore[attr-defined]
        elif action.metavar in ("T", "TEMPLATE", "OTHER") and action.dest in ("template", "templates", "other"):
            action.completer = _templates  # type: ignore[attr-defined]
        elif action.metavar == "NAME_OR_PATH":
            action.completer = _secrets_or_files  # type: ignore[attr-defined]
        elif action.dest == "on_hosts":
            action.completer = _hosts  # type: ignore[attr-defined]
        elif action.dest == "label":
            action.completer = _labels  # type: ignore[attr-defined]
    argcomplete.autocomplete(root)


def _actions(of: argparse.ArgumentParser, verb: str = "") -> Iterator[tuple[str, argparse.Action]]:
    """Every argument and option, with the verb that it belongs to, such as ``secrets rm``."""
    for action in of._actions:  # noqa: SLF001 - argparse has no public way to them
        yield verb, action
    for name, inner in parser.subparsers(of).items():
        yield from _actions(inner, f"{verb} {name}".strip())


def _names(prefix: str, **_: object) -> list[str]:
    listed = _listed("{{.Name}}")
    return [name for name in (listed if listed is not None else _last_seen()) if name.startswith(prefix)]


def _templates(prefix: str, **_: object) -> list[str]:
    from sandbox_console.service import find_paths

    with contextlib.suppress(Exception):
        found = [path.stem for path in find_paths().templates.glob("*.toml")]
        return sorted(name for name in found if name.startswith(prefix) and _PLAIN.fullmatch(name))
    return []


def _secrets_or_files(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return list(FilesCompleter()(prefix)) if parsed_args.leaks else _secrets(prefix)


def _files_or_names(prefix: str, **_: object) -> list[str]:
    from argcomplete.completers import FilesCompleter

    return [*(f"{name}:" for name in _names(prefix)), *FilesCompleter()(prefix)]


def _secrets(prefix: str, **_: object) -> list[str]:
    from sandbox_console.service import find_paths, load

    with contextlib.suppress(Exception):
        return sorted(name for name in load(find_paths()).secrets if name.startswith(prefix))
    return []


def _hosts(prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    from pathlib import Path

    from sandbox_console.service import host_words

    file = getattr(parsed_args, "config", None)
    with contextlib.suppress(Exception):
        return _fitting(prefix, host_words(Path(file) if file else None))
    return []


def _tokens(prefix: str, **_: object) -> list[str]:
    from sandbox_console.service import find_paths
    from sandbox_console.service.tokens import Tokens

    with contextlib.suppress(Exception):
        return _fitting(prefix, (token.name for token in Tokens(find_paths().tokens).every()))
    return []


def _users(prefix: str, **_: object) -> list[str]:
    from sandbox_console.service import find_paths
    from sandbox_console.service.people.users import Users

    with contextlib.suppress(Exception):
        return _fitting(prefix, (user.name for user in Users(find_paths().tokens).every()))
    return []


def _fitting(prefix: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(prefix) and _PLAIN.fullmatch(name)})


def _nothing(**_: object) -> list[str]:
    return []


_OWN_NAMES: dict[str, Callable[..., list[str]]] = {
    "secrets rm": _secrets, "tokens rm": _tokens,
    "users set": _users, "users passwd": _users, "users token": _users, "users rm": _users,
    **dict.fromkeys(
        ("create", "secrets add", "snapshot restore", "tokens add", "users add", "new-backend"), _nothing
    ),
}  # fmt: skip
"""Verbs whose NAME is no sandbox's, or a new one."""


def _last_seen() -> list[str]:
    from sandbox_console.errors import ConsoleError
    from sandbox_console.service import last_names

    with contextlib.suppress(ConsoleError):
        return sorted(name for name in last_names() if _PLAIN.fullmatch(name))
    return []


def _labels(prefix: str, **_: object) -> list[str]:
    pairs = {pair for labels in _listed("{{.Labels}}") or () for pair in labels.split(",")}
    return sorted(pair for pair in pairs if pair.startswith(prefix) and _PLAIN.fullmatch(pair))


def _listed(template: str) -> list[str] | None:
    """One line per sandbox; None if the list is late. Characters of a name that a shell would act on are left out."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("_ARGCOMPLETE", "COMP_"))}
    command = [sys.executable, "-P", "-m", "sandbox_console", "ls", "--all", "--format", template]
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIST_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return sorted({line for line in done.stdout.splitlines() if _PLAIN.fullmatch(line)})
