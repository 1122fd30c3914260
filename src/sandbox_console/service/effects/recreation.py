"""Replaces a sandbox by one with another spec. If that fails, the old one is unchanged.

Each step is noted before it is made, so that the next console can finish or undo what a killed one left half done.
"""

from __future__ import annotations

import secrets as random
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from sandbox_console.backends.abilities import Egress
from sandbox_console.backends.base import Backend, Progress, Secrets
from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Permit
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.egress import EgressRule
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec

NOT_BEGUN = 0
"""The ``audit_id`` of an update that has not begun to replace anything."""
_GRACE_S = 10.0


class Recreation(Struct, frozen=True, kw_only=True):
    """How far a replacement has come.

    ``ref`` and ``name`` are the old sandbox's, ``live`` whether it ran. The new one is called ``made`` until it gets
    the name ``wanted``, and the old one ``aside`` until it is removed. ``new`` is the ref of the new one once it is
    made. From ``ready`` on, the new one is to stay. ``began`` is in seconds since the epoch.
    """

    audit_id: int
    ref: str
    name: str
    live: bool
    wanted: str
    made: str
    aside: str
    new: str = ""
    ready: bool = False
    began: float = 0.0


class Steps(Protocol):
    """Where the steps of one replacement are noted."""

    async def note(self, step: Recreation) -> None:
        """Note the next step. Raises Conflict if that is not possible, as on a full disk."""
        ...

    async def done(self) -> None:
        """There is nothing to finish or undo any more."""
        ...


async def recreate(
    backend: Backend, permit: Permit, old: Sandbox, spec: SandboxSpec, secrets: Secrets, progress: Progress,
    steps: Steps, rules: Sequence[EgressRule] = (),
) -> SandboxRef:  # fmt: skip
    """Create the new one next to the old one, swap them, remove the old one. Returns the new ref.

    The old one runs until the new one is created, and is started again if the new one does not start. ``rules`` are its
    egress rules, if they are to be others than those of its spec: they are in force before it starts.
    """
    own = [secret for secret in secrets if secret.name in spec.secrets]
    step = _first_step(permit, old, spec)
    await steps.note(step)
    progress("making the new sandbox")
    try:
        new = await backend.create(permit, replace(spec, name=step.made), own, progress)
    except BaseException as error:
        await run_to_completion(steps.done())
        _rename_in(error, step)
        raise
    step = replace(step, new=str(new))
    try:
        await steps.note(step)
        if rules and isinstance(backend, Egress):
            await backend.set_egress(permit, new, rules)
        if old.status.live:
            progress("stopping the old one")
            await backend.stop(permit, old.ref, _GRACE_S)
            progress("starting the new one")
            await backend.start(permit, new, own)
        await steps.note(replace(step, ready=True))
        await run_to_completion(_swap(backend, permit, old, new, step))
    except BaseException as error:
        await run_to_completion(_undo(backend, permit, old, new, secrets, steps))
        _rename_in(error, step)
        raise
    await run_to_completion(backend.remove(permit, old.ref, force=True))
    await run_to_completion(steps.done())
    return new


def _first_step(permit: Permit, old: Sandbox, spec: SandboxSpec) -> Recreation:
    mark = random.token_hex(3)
    return Recreation(
        audit_id=permit.audit_id, ref=str(old.ref), name=old.name, live=old.status.live, wanted=spec.name,
        made=f"{spec.name[:50]}-new-{mark}", aside=f"{old.name[:50]}-old-{mark}",
    )  # fmt: skip


def _rename_in(error: BaseException, step: Recreation) -> None:
    """Put the wanted name in place of the temporary one, which nobody knows."""
    if isinstance(error, ConsoleError):
        error.message, error.hint = (text.replace(step.made, step.wanted) for text in (error.message, error.hint))


async def _swap(backend: Backend, permit: Permit, old: Sandbox, new: SandboxRef, step: Recreation) -> None:
    await backend.rename(permit, old.ref, step.aside)
    await backend.rename(permit, new, step.wanted)


async def _undo(
    backend: Backend, permit: Permit, old: Sandbox, new: SandboxRef, secrets: Secrets, steps: Steps
) -> None:
    removed = False
    with suppress(Exception):
        await backend.remove(permit, new, force=True)
        removed = True
    with suppress(Exception):
        await backend.rename(permit, old.ref, old.name)
    if old.status.live and old.spec is not None:
        await backend.start(permit, old.ref, [secret for secret in secrets if secret.name in old.spec.secrets])
    if removed:
        await steps.done()  # otherwise the next console removes the new one
