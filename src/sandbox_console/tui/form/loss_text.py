"""Says what an edit ends or drops, and how to keep it."""

from __future__ import annotations

import shlex

from textual.content import Content

from sandbox_console.model.drift import drifted
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service.reads.losses import Losses, kept_image
from sandbox_console.tui.text.formatting import size

_FILES_SHOWN = 8
_MEMORY = "what is kept in memory, such as /tmp, is not counted"


def loss_text(losses: Losses, sandbox: Sandbox, *, commits: str, at: float) -> Content:
    """Return a line for each kind of loss, and the commands that keep files.

    ``commits`` is why the backend cannot commit the sandbox to an image; empty if it can. ``at`` is the time, which is
    in the image's name.
    """
    parts: list[tuple[str, str]] = [("Recreated: ", "bold $text-warning"), (_downtime(sandbox), "")]
    parts += [
        ("\nLost  ", "bold"),
        *_files(losses, shlex.quote(clean(sandbox.name))),
        ("\nEnds  ", "bold"),
        (_ends(losses, sandbox), ""),
    ]
    if words := live_egress(sandbox):
        parts += [("\nStays ", "bold"), (words, "")]
    if losses.files:
        parts += [("\nKeep  ", "bold"), *_keeping(losses, sandbox, commits, at)]
    return Content.assemble(*parts)


def loss_sentence(losses: Losses, sandbox: Sandbox) -> str:
    """Return what a recreation loses and how long it is down, in one line."""
    if losses.files_unknown:
        lost = f"loses what it wrote outside its workspace (which files is not known: {losses.files_unknown})"
    elif losses.files:
        lost = f"loses {len(losses.files)} files, {size(losses.known_bytes)}, outside its workspace"
    else:
        lost = "loses no file"
    down = "down while the old one stops (up to 10 s) and the new one starts" if sandbox.status.live else ""
    ends = f"ends {_ends(losses, sandbox)}" if sandbox.status.live else ""
    return "; ".join(filter(None, (lost, ends, down, live_egress(sandbox))))


def live_egress(sandbox: Sandbox) -> str:
    """Return which egress that was decided while it ran a new sandbox has too; empty if none."""
    if sandbox.spec is None or "egress" not in drifted(sandbox):
        return ""
    found = sandbox.found["egress"]
    words = found if isinstance(found, str) else ", ".join(found) or "nothing is allowed"
    return f"egress as it was decided while it ran ({clean(words, cap=200)}), with your changes"


def _downtime(sandbox: Sandbox) -> str:
    if not sandbox.status.live:
        return "it does not run, so nothing is interrupted; if it fails, the old one stays."
    return (
        "the new one is made while the old one runs; it is down while the old one stops (up to 10 s) and the new one"
        " starts. If that fails, the old one is started again."
    )


def _files(losses: Losses, name: str) -> list[tuple[str, str]]:
    if losses.files_unknown:
        text = f"whatever it wrote outside its workspace; which files is not known: {losses.files_unknown}"
        return [(clean(text, cap=300), "$text-warning")]
    if not losses.files:
        return [(f"no file outside its workspace differs from its image; {_MEMORY}", "")]
    unknown = sum(one.size is None for one in losses.files)
    more = f" and {unknown} of unknown size" if unknown else ""
    known = len(losses.files) - unknown
    parts = [(f"{known} files, {size(losses.known_bytes)}{more}, outside its workspace:", "$text-warning")]
    parts += [(f"\n      {size(one.size):>8}  {clean(one.path, cap=100)}", "") for one in losses.files[:_FILES_SHOWN]]
    if (left := len(losses.files) - _FILES_SHOWN) > 0:
        parts.append((f"\n      and {left} more: sandbox-console diff {name}", "$dim"))
    parts.append((f"\n      {_MEMORY}", "$dim"))
    return parts


def _ends(losses: Losses, sandbox: Sandbox) -> str:
    if not sandbox.status.live:
        return "nothing: it does not run"
    words = ["its main process"]
    if losses.processes_unknown:
        words.append("its other processes")
    elif losses.processes:
        words.append(f"{losses.processes} other processes")
    if losses.shells:
        words.append(f"{losses.shells} open shells and forwards of this console")
    if losses.kept_shells:
        words.append(f"{losses.kept_shells} kept shells")
    return ", ".join(words)


def _keeping(losses: Losses, sandbox: Sandbox, commits: str, at: float) -> list[tuple[str, str]]:
    name = shlex.quote(clean(sandbox.name))
    first = shlex.quote(clean(losses.files[0].path, cap=200))
    copy = f"copy out: sandbox-console cp {name}:{first} ."
    if commits:
        return [(f"commit is unsupported here ({clean(commits, cap=120)})\n      {copy}", "$dim")]
    image = kept_image(sandbox.name, at)
    return [(f"commit first (k): its files go into the image {image}\n      {copy}", "$dim")]
