"""The state of the audit log's chain, in one line."""

from __future__ import annotations

from datetime import datetime

from textual.content import Content

from sandbox_console.model.audit import Verification
from sandbox_console.tui.base.safety import plain


def chain_words(problem: str, verified: tuple[float, Verification] | None, *, verifying: bool) -> Content:
    """Return whether the log can be written and what the last verification found. ``verified`` includes its time."""
    if problem:
        return plain(f"✕ it cannot be written: {problem}", "$text-error")
    if verifying:
        return plain("◌ verifying every row …", "$dim")
    if verified is None:
        return plain("not verified yet", "$dim")
    at, verification = verified
    when = clock_words(at)
    if not verification.ok:
        return plain(f"✕ BROKEN, verified {when}: {verification.problem}", "$text-error")
    parts = f" in {verification.segments} segments" if verification.segments > 1 else ""
    words = f"● the chain holds: {verification.rows:,} rows{parts}, verified {when}"
    if verification.anchored_at is None:
        return plain(f"{words}, no anchor yet", "$text-success")
    anchored = datetime.fromtimestamp(verification.anchored_at).astimezone()
    return plain(f"{words}, anchored {anchored:%m-%d %H:%M:%S}", "$text-success")


def clock_words(at: float) -> str:
    """Return the time of day."""
    return f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}"
