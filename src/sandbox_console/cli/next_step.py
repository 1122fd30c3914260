"""Adds the next step to an error that has none, as a command."""

from __future__ import annotations

import argparse
from pathlib import Path

from sandbox_console.errors import ConfigError, ConsoleError, Denied, Unsupported, UsageError
from sandbox_console.service import find_paths


def add_next_step(error: ConsoleError, args: argparse.Namespace) -> None:
    """Add a hint to an error that has none, and to a rule of the configuration the file that it is in."""
    if isinstance(error, Denied) and error.rule.startswith("policy."):
        flag = error.rule == "policy.read_only" and args.read_only
        if not error.hint or (error.rule == "policy.read_only" and not flag):
            error.hint = f"{error.rule} is set in {_config_file(args)} or the environment"
    elif error.hint:
        return
    elif isinstance(error, Unsupported):
        error.hint = "sandbox-console doctor shows what each backend can do"
    elif isinstance(error, ConfigError):
        error.hint = f"it is set in {_config_file(args)} or the environment"
    elif isinstance(error, UsageError):
        error.hint = f"{_verb(args)} --help"


def _verb(args: argparse.Namespace) -> str:
    return " ".join(filter(None, ["sandbox-console", args.verb, getattr(args, "what", "")]))


def _config_file(args: argparse.Namespace) -> Path:
    return find_paths(Path(args.config) if args.config else None).config_file
