"""Finds a sandbox's main process, a managed job of the runtime that outlives the console.

The runtime stores its output and exit code.

The runtime itself has no main process. By the console's rule, it is the first job of a boot that runs the spec's
command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox_console.backends.microsandbox import labels
from sandbox_console.model.sandbox import Exit

ALL = 1000
"""How many jobs of a sandbox are examined, newest first. Each start makes one, and so does ``msb exec --detach``."""

_KILLED = 128 + 9


def mains(jobs: Sequence[Any], command: Sequence[str]) -> list[Any]:
    """The main process of each boot, oldest first."""
    first: dict[str, Any] = {}
    for job in sorted(jobs, key=lambda one: one.created_at):
        first.setdefault(job.runtime_boot_id, job)
    return [job for job in first.values() if list(job.command) == list(command)]


def of_boot(jobs: Sequence[Any], command: Sequence[str], boot_id: str) -> Any | None:
    """The main process of one boot or, if the boot is unknown, of the newest boot that has one.

    The jobs of older boots stay in the runtime's list. Before the main process of a boot has started, they do not mean
    its end.
    """
    found = mains(jobs, command) if command else []
    mine = [job for job in found if boot_id in ("", job.runtime_boot_id)]
    return mine[-1] if mine else None


def killed(job: Any | None) -> bool:
    """Whether the guest's kernel may have ended a main process, or a process that it waited for."""
    return job is not None and job.state == "exited" and job.exit_code in (-1, _KILLED)


def exit_of(job: Any, marks: dict[str, str], oom: frozenset[int] = frozenset()) -> Exit:
    """How it ended; ``marks`` are the sandbox's labels, ``oom`` what the guest's kernel killed because memory ran out.

    The runtime reports -1 for any signal.
    """
    ended = marks.get(labels.ENDED, "").split()
    if len(ended) == 2 and ended[0] == job.id and ended[1].isdecimal():
        code = int(ended[1])
        return Exit(code, code - 128)
    if killed(job) and oom and (job.pid in oom or job.exit_code == _KILLED):
        return Exit(_KILLED, 9, oom=True)
    if job.state == "exited" and job.exit_code is not None and job.exit_code >= 0:
        return Exit(job.exit_code)
    if job.state == "exited":
        return Exit(reason="ended by a signal; the runtime does not say which")
    return Exit(reason=str(job.error or ""))
