"""Signals by name."""

from __future__ import annotations

import signal

from sandbox_console.errors import UsageError


def number_of(name: str) -> int:
    """``SIGTERM`` or ``TERM`` as a number. Raises UsageError."""
    try:
        return int(signal.Signals[name if name.startswith("SIG") else f"SIG{name}"])
    except KeyError:
        raise UsageError(f"{name!r} is not a signal", hint="SIGTERM, SIGKILL, SIGHUP, ...") from None
