"""What is said in every backend where a sandbox is not in the state, or has not the name or place, that is asked."""

from __future__ import annotations

from sandbox_console.errors import Conflict


def not_running(name: str, status: str = "") -> Conflict:
    """It has to run for what is asked; ``status`` is what it is instead, where that is known."""
    return Conflict(
        f"{name} does not run" + (f": it is {status}" if status else ""), hint=f"sandbox-console start {name}"
    )


def name_taken(name: str) -> Conflict:
    """Another sandbox of the backend has the name."""
    return Conflict(f"the name {name!r} is taken", hint="choose another, or remove that sandbox")


def place_taken(name: str, place: str, holder: str, hint: str) -> Conflict:
    """``place`` (``address:port``), at which sandbox ``name`` is to be published, is ``holder``'s; empty: not known."""
    return Conflict(f"{name}: {place} is taken by {holder or 'another program of the host'}", hint=hint)
