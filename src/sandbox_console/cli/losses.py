"""Prints what a sandbox loses when it is recreated, and how to keep it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox_console.cli.formatting import size
from sandbox_console.model.drift import drifted
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service.reads.losses import Losses

_SHOWN = 8
"""How many files are named; the rest are counted. JSON has all of them."""


def data(lost: Losses | None, commits: str) -> dict[str, Any] | None:
    """The losses for JSON; None if nothing is recreated. ``commits`` is why it cannot be committed."""
    if lost is None:
        return None
    return {
        "files": [{"path": one.path, "size": one.size} for one in lost.files],
        "files_bytes": lost.known_bytes,
        "files_unknown": lost.files_unknown,
        "processes": lost.processes,
        "processes_unknown": lost.processes_unknown,
        "shells": lost.shells,
        "kept_shells": lost.kept_shells,
        "can_commit": not commits,
        "commit_unsupported": commits,
    }


def lines(lost: Losses, found: Sandbox, commits: str) -> Sequence[str]:
    """The losses for people, and how to keep the files."""
    text = [f"loses: {_files(lost)}"]
    text += [f"  {size(one.size):>10}  {one.path}" for one in lost.files[:_SHOWN]]
    if (more := len(lost.files) - _SHOWN) > 0:
        text.append(f"  and {more} more: sandbox-console diff {found.name}")
    if found.status.live:
        text.append(f"ends: {_ends(lost)}")
    if "egress" in drifted(found):
        text.append("stays: egress as it was decided while it ran, with your changes (drift shows it)")
    if lost.files or lost.files_unknown:
        kept = f"cannot be committed here ({commits})" if commits else "--commit makes an image of it before"
        text.append(f"keep: {kept}; cp copies files out")
    return text


def _files(lost: Losses) -> str:
    if lost.files_unknown:
        return f"what it wrote outside its workspace; which files is not known: {lost.files_unknown}"
    if not lost.files:
        return "no file outside its workspace; what is kept in memory, such as /tmp, is not counted"
    unknown = sum(one.size is None for one in lost.files)
    more = f", and {unknown} of unknown size" if unknown else ""
    return f"{_many(len(lost.files) - unknown, 'file')} outside its workspace, {size(lost.known_bytes)}{more}"


def _many(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _ends(lost: Losses) -> str:
    words = ["its main process"]
    if lost.processes_unknown:
        words.append("its other processes")
    elif lost.processes:
        words.append(f"{lost.processes} other process{'' if lost.processes == 1 else 'es'}")
    if lost.shells:
        words.append(_many(lost.shells, "open shell or forward"))
    if lost.kept_shells:
        words.append(_many(lost.kept_shells, "kept shell"))
    return ", ".join(words)
