"""Chooses the sandboxes that a verb applies to: the NAMEs, or our own with a label, after a confirmation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from sandbox_console.cli.context import Context
from sandbox_console.cli.ls import exit_text
from sandbox_console.cli.spec_options import pairs
from sandbox_console.errors import BackendUnreachable, ConsoleError, NeedsConfirmation, UsageError
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, Status
from sandbox_console.service import Console

_LISTED = 20
"""How many are named in a question; the rest are counted."""


_ENDED = (Status.EXITED, Status.FAILED, Status.LOST)
"""The states that ``prune`` removes: not those that were made and never started, nor those of unknown state."""


DRY_RUN = "check with --dry-run, then add --yes"
"""The hint of a question that a verb with ``--dry-run`` asks."""


async def chosen(context: Context, console: Console) -> list[str]:
    """The NAMEs. With ``--label`` and for ``prune``, the full references of our sandboxes, after a confirmation.

    Others' sandboxes can be chosen only by NAME. A host that did not answer is a failure of the verb, because its
    sandboxes were not considered. Raises UsageError, NeedsConfirmation.
    """
    args = context.args
    if args.verb != "prune" and not args.label:
        if not args.names:
            raise UsageError("no sandbox is named", hint=f"sandbox-console {args.verb} NAME..., or -l KEY=VALUE")
        if args.dry_run:
            raise UsageError("--dry-run needs --label: it lists the sandboxes that match", hint="leave it out")
        return list(dict.fromkeys(args.names))
    if args.names:
        raise UsageError("NAMEs and --label cannot be used together", hint="leave one of them out")
    found = await labelled(context, console, args.label, "label")
    if args.verb == "prune":
        found = [one for one in found if one.status in _ENDED and not one.quarantine]
    if args.dry_run:
        for one in found:
            _tell(context, one)
        return []
    if not found:
        context.say("nothing to do: no sandbox of this console matches")
    else:
        verb = "rm" if args.verb == "prune" else args.verb
        await agree(context, found, verb)
    return [str(one.ref) for one in found]


async def labelled(context: Context, console: Console, labels: Sequence[str], option: str) -> list[Sandbox]:
    """Our sandboxes with these labels, given as KEY=VALUE, by name. Raises UsageError."""
    wanted = pairs(labels, option)
    sandboxes, healths = await console.list(context.backend[0])
    found = [one for one in sandboxes if one.managed and all(one.labels.get(k) == v for k, v in wanted.items())]
    fail_for_the_silent(context, healths)
    return sorted(found, key=lambda one: (one.name, one.ref))


def _tell(context: Context, one: Sandbox) -> None:
    if context.json:
        context.record({"name": one.name, "ref": str(one.ref), "action": context.args.verb, "dry_run": True})
    else:
        context.text(f"{one.name}  {one.status}  {exit_text(one)}  {one.ref}")


def fail_for_the_silent(context: Context, healths: Sequence[BackendHealth]) -> None:
    """Count a host that did not answer as a failure of the verb, because its sandboxes were not considered.

    With ``--only-answering`` it is none.
    """
    for one in healths if not context.args.only_answering else ():
        if not one.ok and one.state is not HealthState.UNAVAILABLE:
            host = one.backend if one.host == "local" else f"{one.backend}/{one.host}"
            context.fail(BackendUnreachable(f"{host} was not searched: {one.reason}", hint=one.hint))


async def agree(context: Context, found: Sequence[Sandbox], verb: str) -> None:
    """Ask at a terminal for a yes, unless ``--yes`` was given. Raises NeedsConfirmation, or ConsoleError for a no."""
    names = ", ".join(one.name for one in found[:_LISTED])
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    question = f"{verb} {len(found)} sandbox{'' if len(found) == 1 else 'es'}: {names}{more}"
    await confirm(context, [question], hint=DRY_RUN)


async def confirm(context: Context, question: Sequence[str], head: str = "", hint: str = "add --yes") -> None:
    """Ask about some lines at a terminal, unless ``--yes`` was given. Raises like `agree`."""
    if context.args.yes:
        return
    fd = context.streams.stdin
    if fd is None or context.json or not (os.isatty(fd) and context.streams.err.tty):
        text = f"{head}{' ' if head else ''}{'; '.join(question)}: not confirmed"
        raise NeedsConfirmation(text, token="", hint=hint)
    for line in filter(None, [head, *question]):
        context.say(line)
    context.say("Go on? [y/N]")
    if (await _line(fd)).strip().lower() not in ("y", "yes"):
        raise ConsoleError("nothing was done: the question was answered with no")


async def _line(fd: int) -> str:
    """Read a line typed at a terminal. A signal ends the wait."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, 4096).decode("utf-8", "replace")
