"""Replaces a sandbox by one with another spec. If that fails, the old one is unchanged."""

from __future__ import annotations

import secrets as random
from contextlib import suppress

from msgspec import structs

from sandbox_console.backends.base import Backend, Progress, Secrets
from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Permit
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.spec import SandboxSpec

_GRACE_S = 10.0


async def recreate(
    backend: Backend, permit: Permit, old: Sandbox, spec: SandboxSpec, secrets: Secrets, progress: Progress
) -> SandboxRef:
    """Create the new one next to the old one, swap them, remove the old one. Returns the new ref.

    The old one runs until the new one is created, and is started again if the new one does not start.
    """
    own = [secret for secret in secrets if secret.name in spec.secrets]
    temporary = f"{spec.name[:50]}-new-{random.token_hex(3)}"
    progress("making the new sandbox")
    new = await backend.create(permit, structs.replace(spec, name=temporary), own, progress)
    try:
        if old.status.live:
            progress("stopping the old one")
            await backend.stop(permit, old.ref, _GRACE_S)
            progress("starting the new one")
            await backend.start(permit, new, own)
        await run_to_completion(_swap(backend, permit, old, new, spec.name))
    except BaseException as error:
        await run_to_completion(_undo(backend, permit, old, new, secrets))
        if isinstance(error, ConsoleError):  # nobody knows the temporary name of the new one
            error.message, error.hint = (text.replace(temporary, spec.name) for text in (error.message, error.hint))
        raise
    await run_to_completion(backend.remove(permit, old.ref, force=True))
    return new


async def _swap(backend: Backend, permit: Permit, old: Sandbox, new: SandboxRef, name: str) -> None:
    await backend.rename(permit, old.ref, f"{old.name[:50]}-old-{random.token_hex(3)}")
    await backend.rename(permit, new, name)


async def _undo(backend: Backend, permit: Permit, old: Sandbox, new: SandboxRef, secrets: Secrets) -> None:
    with suppress(Exception):
        await backend.remove(permit, new, force=True)
    with suppress(Exception):
        await backend.rename(permit, old.ref, old.name)
    if old.status.live and old.spec is not None:
        await backend.start(permit, old.ref, [secret for secret in secrets if secret.name in old.spec.secrets])
