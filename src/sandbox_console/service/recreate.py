"""Replace a sandbox by one of another spec; if that fails, the old one is there as it was."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets as random
from contextlib import suppress

from sandbox_console.backends.base import Backend, Progress, Secrets
from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Permit
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec

_GRACE_S = 10.0


async def recreate(
    backend: Backend, permit: Permit, old: Sandbox, spec: SandboxSpec, secrets: Secrets, progress: Progress
) -> SandboxRef:
    """Make the new one beside the old, swap them, remove the old. Gives the new ref.

    The old one runs until the new one is made, and is started again when the new one does not start.
    """
    own = [secret for secret in secrets if secret.name in spec.secrets]
    temporary = f"{spec.name[:50]}-new-{random.token_hex(3)}"
    progress("making the new sandbox")
    new = await backend.create(permit, dataclasses.replace(spec, name=temporary), own, progress)
    try:
        if old.status.live:
            progress("stopping the old one")
            await backend.stop(permit, old.ref, _GRACE_S)
            progress("starting the new one")
            await backend.start(permit, new, own)
    except BaseException:
        await asyncio.shield(_undo(backend, permit, old, new, secrets))
        raise
    await asyncio.shield(_swap(backend, permit, old, new, spec.name))
    return new


async def _swap(backend: Backend, permit: Permit, old: Sandbox, new: SandboxRef, name: str) -> None:
    await backend.remove(permit, old.ref, force=True)
    await backend.rename(permit, new, name)


async def _undo(backend: Backend, permit: Permit, old: Sandbox, new: SandboxRef, secrets: Secrets) -> None:
    with suppress(ConsoleError):
        await backend.remove(permit, new, force=True)
    if old.status.live and old.spec is not None:
        await backend.start(permit, old.ref, [secret for secret in secrets if secret.name in old.spec.secrets])
