"""Finds the newest boot of each sandbox: its process on this host, and why it ended.

The SDK reports neither. They are read from /proc and the runtime's log, never from its database: a second SQLite in the
process drops the locks of the SDK's SQLite when it closes the file (fcntl(2)), after which the SDK's next access ends
in a SIGBUS.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from sandbox_console.backends.microsandbox.boot_failure import last_boot, runtime_messages, system_log, tail
from sandbox_console.backends.microsandbox.sdk import home

_PROC = Path("/proc")
_PROGRAM, _VERB = b"msb", b"machine"
_KERNEL = re.compile(
    r"^\[ *(\d+\.\d+)\] (?:.*ut of memory: Killed process (\d+) \()?", re.MULTILINE
)  # a line from the kernel itself
_REASONS = (
    (re.compile(r"max duration .* exceeded"), "its max_duration ran out"),
    (re.compile(r"sandbox idle, requesting guest shutdown"), "its idle_timeout ran out"),
)


class Run(Struct, frozen=True):
    """The newest boot. ``started_at`` is seconds since the epoch; ``id`` is empty if unknown."""

    pid: int | None = None
    started_at: float | None = None
    reason: str = ""
    id: str = ""
    oom: frozenset[int] = frozenset()
    """The guest's processes that its kernel killed because memory ran out, if that was looked for."""
    places: frozenset[str] | None = None
    """Where its process listens for published ports; None if it is not running, or this was not looked for."""


def processes() -> Mapping[str, int]:
    """The microVM process of every sandbox of this home, by the handle's id (``local:5``). Empty except on Linux."""
    if sys.platform != "linux":
        return {}
    found = {}
    for entry in os.listdir(_PROC):  # noqa: PTH208 - half the time of iterdir()
        if entry.isdecimal() and (identity := _sandbox_of(_PROC / entry)):
            found[identity] = int(entry)
    return found


def ended(name: str) -> Run:
    """The newest boot of a sandbox that has ended, by its name in the runtime."""
    return Run(None, _booted_at(name), _reason(last_boot(system_log(name))), boot_id(name))


def running(name: str, pid: int | None) -> Run:
    """The newest boot of a running sandbox."""
    return Run(pid, _booted_at(name), id=boot_id(name))


def booted_mib(pid: int | None) -> int | None:
    """The memory that a microVM's process was started with; None if that cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return int(_option((_PROC / str(pid) / "cmdline").read_bytes().split(b"\0"), b"--memory-mib"))
    return None


def boot_id(name: str) -> str:
    """The runtime's id of the newest boot of a sandbox; empty if it cannot be read."""
    try:
        return _boot_file(name).read_text(errors="replace").strip()
    except OSError:
        return ""


def out_of_memory(name: str) -> frozenset[int]:
    """The processes that the guest's kernel killed because memory ran out, since its newest boot."""
    found: set[int] = set()
    before = 0.0
    for stamp, pid in _KERNEL.findall(tail(home() / "sandboxes" / name / "logs" / "kernel.log")):
        if float(stamp) < before:  # the clock starts over with another boot
            found.clear()
        before = float(stamp)
        found |= {int(pid)} if pid else set()
    return frozenset(found)


def _sandbox_of(process: Path) -> str:
    """The id of the microVM that a process runs; empty if it runs none, or one of another home."""
    with contextlib.suppress(OSError):
        words = (process / "cmdline").read_bytes().split(b"\0")
        if len(words) < 6 or words[1] != _VERB or not words[0].endswith(_PROGRAM):
            return ""
        lock, identity = _option(words, b"--lifecycle-lock-fd"), _option(words, b"--sandbox-id")
        if lock and identity and (process / "fd" / lock).readlink().is_relative_to(home().resolve()):
            return f"local:{identity}"
    return ""


def _option(words: Sequence[bytes], name: bytes) -> str:
    """An option's value, whatever precedes it; empty if it is not given."""
    with contextlib.suppress(ValueError, IndexError):
        return words[words.index(name) + 1].decode("utf-8", "replace")
    return ""


def _booted_at(name: str) -> float | None:
    try:
        return _boot_file(name).stat().st_mtime
    except OSError:
        return None


def _boot_file(name: str) -> Path:
    return home() / "sandboxes" / name / "runtime" / "runtime-boot-id"


def _reason(log: str) -> str:
    lines = [line.partition(" sandbox=")[0] for line in runtime_messages(log)]  # a name may be anything
    return next((meaning for words, meaning in _REASONS if any(words.search(line) for line in lines)), "")
