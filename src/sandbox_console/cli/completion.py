"""Completion for bash, zsh and fish: verbs and options from the parser, names and labels from the live sandboxes."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

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
    for action in _actions(root):
        if action.dest in ("name", "names") and action.metavar == "NAME":
            action.completer = _names  # type: ignore[attr-defined]
        elif action.metavar in ("T", "TEMPLATE", "OTHER") and action.dest in ("template", "templates", "other"):
            action.completer = _templates  # type: ignore[attr-defined]
        elif action.metavar == "NAME_OR_PATH":
            action.completer = _secrets_or_files  # type: ignore[attr-defined]
        elif action.dest == "label":
            action.completer = _labels  # type: ignore[attr-defined]
    argcomplete.autocomplete(root)


def _actions(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    yield from of._actions  # noqa: SLF001 - argparse has no public way to them
    for name, inner in parser.subparsers(of).items():
        for action in _actions(inner):
            if name != "create" or action.dest != "name":  # its NAME is a new one
                yield action


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

    from sandbox_console.service import find_paths, load

    if parsed_args.leaks:
        return list(FilesCompleter()(prefix))
    with contextlib.suppress(Exception):
        return sorted(name for name in load(find_paths()).secrets if name.startswith(prefix))
    return []


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
