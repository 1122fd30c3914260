"""Whether microVMs can boot here."""

from __future__ import annotations

import asyncio

from sandbox_console.backends.microsandbox import diagnosis, kvm, sdk
from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import BackendHealth, HealthState


async def look() -> BackendHealth:
    """Ask the host and the runtime. Raises nothing but CancelledError."""
    try:
        if found := await asyncio.to_thread(kvm.problem):
            return _down(*found)
        if not kvm.TRIED and (failed := await asyncio.to_thread(diagnosis.last_failure)):
            return _down(f"the last boot failed: {failed[0]}", failed[1])
        module = await sdk.load()
        if await asyncio.to_thread(sdk.used):
            await sdk.call(module, "its list of sandboxes", module.Sandbox.list_with(limit=1))
    except ConsoleError as error:
        return _down(error.message, error.hint)
    return BackendHealth("microsandbox", "local", HealthState.OK, version=sdk.version())


def _down(reason: str, hint: str) -> BackendHealth:
    return BackendHealth("microsandbox", "local", HealthState.UNAVAILABLE, reason, hint, sdk.version())
