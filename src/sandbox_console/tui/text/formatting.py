"""States, sizes, times and exits as text. Pure; all its text is clean."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from sandbox_console.errors import ConsoleError
from sandbox_console.model.image import Image
from sandbox_console.model.sandbox import Exit, HealthState, HostKey, Sandbox, Status
from sandbox_console.model.text import ascii_id, clean

LEAVE_KEY = "ctrl+right_square_bracket"
"""The only key that a guest's terminal does not receive."""
DASH = "–"
_PLATFORMS = 2
"""How many platforms of an image are named; the rest are counted."""
STATUS = {
    Status.CREATED: ("○", "dim"),
    Status.STARTING: ("◌", "accent"),
    Status.RUNNING: ("●", "ok"),
    Status.PAUSED: ("‖", "warn"),
    Status.STOPPING: ("◌", "warn"),
    Status.EXITED: ("■", "dim"),
    Status.FAILED: ("✕", "error"),
    Status.LOST: ("?", "error"),
    Status.UNKNOWN: ("?", "warn"),
}
"""A glyph and a style for each state. They are shown beside the word, as some people cannot see the colours."""
HEALTH = {
    HealthState.CONNECTING: ("◌", "accent"),
    HealthState.OK: ("●", "ok"),
    HealthState.UNREACHABLE: ("✕", "error"),
    HealthState.UNAVAILABLE: ("○", "dim"),
}
STYLES = {
    "": "",
    "ok": "$text-success",
    "warn": "$text-warning",
    "error": "$text-error",
    "dim": "$dim",
    "accent": "$text-accent",
}
"""The styles of table cells as Textual styles, for other widgets."""
DOING = {
    "create": "creating",
    "start": "starting",
    "stop": "stopping",
    "kill": "killing",
    "restart": "restarting",
    "pause": "pausing",
    "resume": "resuming",
    "remove": "removing",
    "update": "updating",
    "rename": "renaming",
    "commit": "committing",
    "snapshot": "saving",
    "fork": "copying",
}
SHORT_ID = 12
LOCAL = ("local", "default", "")
"""The backends' names for this machine."""


def short_id(sandbox: Sandbox) -> str:
    """Return the beginning of the id as ASCII, which look-alike letters cannot imitate."""
    return ascii_id(sandbox.ref.id)[:SHORT_ID]


def sandbox_host(sandbox: Sandbox) -> str:
    """Return the backend, with its host if that is not this machine."""
    return host_label((sandbox.ref.backend, sandbox.ref.host))


def host_label(host_key: HostKey) -> str:
    """Return a backend, with its host if that is not this machine."""
    backend, host = host_key
    return clean(backend if host in LOCAL else f"{backend}@{host}")


def shown_name(sandbox: Sandbox) -> str:
    """Return the name. If it is not ASCII, the id is added to distinguish look-alikes; ⚠ warns of mixed alphabets."""
    return "".join(name_and_id(sandbox))


def name_and_id(sandbox: Sandbox) -> tuple[str, str]:
    """Return the name and the id to add, for places that may lack room for both. The id is empty if not needed."""
    name = clean(sandbox.name, cap=200)
    if sandbox.name.isascii() and sandbox.name.isprintable():
        return name, ""
    return f"{'⚠ ' if mixes_scripts(sandbox.name) else ''}{name}", f" ({short_id(sandbox)})"


def size(count: float | None) -> str:
    """Return bytes in binary units: ``512M``, ``1.5G``."""
    if count is None:
        return DASH
    amount = float(count)
    for unit in "BKMGT":
        if amount < 1000 or unit == "T":
            return f"{amount:.1f}{unit}" if amount < 10 and unit in "GT" else f"{amount:.0f}{unit}"
        amount /= 1024
    return DASH


def span(seconds: float) -> str:
    """Return a duration in at most two units: ``42s``, ``3m10s``, ``5h``, ``12d``."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 3600:
        return f"{whole // 60}m"
    if whole < 36000:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 3600}h" if whole < 172800 else f"{whole // 86400}d"


def exit_words(end: Exit | None) -> str:
    """Return how a sandbox ended: ``exit 3``, ``signal 9 out of memory``. Empty if nothing is known."""
    if end is None:
        return ""
    words = []
    if end.oom:
        words.append("out of memory")
    if end.signal:
        words.append(f"signal {end.signal}")
    elif end.code is not None:
        words.append(f"exit {end.code}")
    if end.reason and end.reason not in words:
        words.append(clean(end.reason, cap=200))
    return ", ".join(words)


def status_reason(sandbox: Sandbox) -> str:
    """Return what users want to know first: how a sandbox ended, or what is wrong with it."""
    ended = exit_words(sandbox.exit) if not sandbox.status.live else ""
    detail = clean(sandbox.detail, cap=400)
    return ended if not detail or detail in ended else f"{ended}: {detail}" if ended else detail


def status_reason_style(sandbox: Sandbox) -> str:
    """Return the style of `why`, so that bad exits stand out."""
    if sandbox.status in (Status.FAILED, Status.LOST) or (sandbox.exit and sandbox.exit.oom):
        return "error"
    return "warn" if sandbox.exit and sandbox.exit.code and not sandbox.status.live else "dim"


def many(count: int, noun: str = "sandbox") -> str:
    """Return ``1 sandbox``, ``5 sandboxes``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('x') else 's'}"


def maker(sandbox: Sandbox) -> str:
    """Return who made a sandbox, not cleaned: ``ours`` if this console manages it, empty if not known."""
    return "ours" if sandbox.managed else sandbox.maker


def error_words(error: ConsoleError, *, apart: bool = False) -> str:
    """Return what failed, followed by the next step in brackets, or with ``apart`` on a line of its own."""
    if not error.hint:
        return error.message
    return f"{error.message}\n{error.hint}" if apart else f"{error.message} ({error.hint})"


_TOGETHER = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
)
"""Scripts that a single language combines (Unicode Technical Standard 39, "highly restrictive")."""


@lru_cache(maxsize=4096)
def mixes_scripts(text: str) -> bool:
    """Return whether a text's letters are from alphabets that no language mixes."""
    found = {_script(char) for char in text[:256] if char.isalpha()}
    return len(found) > 1 and not any(found <= together for together in _TOGETHER)


def _script(char: str) -> str:
    # The standard library has no table of scripts, but the first word of a letter's name is its script.
    return unicodedata.name(char, "UNKNOWN").split()[0].split("-")[0]


def platform_words(image: Image) -> str:
    """Return the platforms of an image that its host has, with a sign if it runs there only by emulation.

    Empty if they are not known.
    """
    shown, more = image.platforms[:_PLATFORMS], len(image.platforms) - _PLATFORMS
    words = [*(clean(one, cap=30) for one in shown), *([f"+{more}"] if more > 0 else []), *(["!"] * image.emulated)]
    return " ".join(words)
