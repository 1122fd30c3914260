"""An error without a next step of its own gets one, and a rule of the policy names where it stands."""

from __future__ import annotations

import pytest

from sandbox_console.cli import parser
from sandbox_console.cli.next_step import add_next_step
from sandbox_console.errors import ConfigError, ConsoleError, Denied, NotFound, Unsupported, UsageError

FILE = "/home/me/cfg.toml"


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["audit", "show", "x"], UsageError("off"), "sandbox-console audit show --help"),
        (["ls"], UsageError("off", hint="its own"), "its own"),
        (["ls"], ConfigError("off"), f"it is set in {FILE} or the environment"),
        (["ls"], Unsupported("no"), "sandbox-console doctor shows what each backend can do"),
        (["rm", "x"], NotFound("gone"), ""),
        (["rm", "x"], Denied("no", rule="policy.deny"), f"policy.deny is set in {FILE} or the environment"),
        (["rm", "x"], Denied("no", rule="policy.ask", hint="--yes"), "--yes"),
        (
            ["--read-only", "rm", "x"],
            Denied("no", rule="policy.read_only", hint="without the flag"),
            "without the flag",
        ),
        (
            ["rm", "x"],
            Denied("no", rule="policy.read_only", hint="without the flag"),
            f"policy.read_only is set in {FILE} or the environment",
        ),
    ],
)
def test_the_hint(words: list[str], error: ConsoleError, hint: str) -> None:
    add_next_step(error, parser.parse(["--config", FILE, *words]))
    assert error.hint == hint
