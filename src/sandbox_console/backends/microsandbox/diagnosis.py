"""The lines of ``doctor`` about the package, the runtime, KVM, the last real boot and the space on disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from sandbox_console.backends.microsandbox import boot_failure, kvm, sdk
from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, HealthState

LEAST_GIB = 2
"""With less free space than this, one ordinary image and a sandbox's own disk may not fit."""

_PATIENCE_S = 20.0
_MISMATCH = "unset MSB_PATH, or bring both to one version: pip install --force-reinstall microsandbox"


async def look() -> Sequence[Diagnosis]:
    """All findings. Raises nothing but CancelledError."""
    diagnoses = [await asyncio.to_thread(_kvm), await _runtime()]
    diagnoses += await asyncio.to_thread(_last_boot)
    return [*diagnoses, await asyncio.to_thread(_disk)]


def _kvm() -> Diagnosis:
    problem = kvm.problem()
    if problem is None:
        return Diagnosis("kvm", "ok", "a guest's own instructions run, in 64-bit mode with paging")
    return Diagnosis("kvm", "warning", *problem)


async def _runtime() -> Diagnosis:
    try:
        module = await sdk.load()
        path = (await asyncio.to_thread(module.resolve_runtime)).msb_path
        output = await _asked(path)
    except ConsoleError as error:
        return Diagnosis("runtime", "warning", error.message, error.hint)
    except Exception as error:  # noqa: BLE001 - the SDK's own errors are many
        return Diagnosis("runtime", "warning", str(error), "pip install --force-reinstall microsandbox")
    if output.split()[-1:] != [sdk.version()]:
        return Diagnosis("runtime", "warning", f"{path} is {output}, and the SDK is {sdk.version()}", _MISMATCH)
    return Diagnosis("runtime", "ok", f"{output}, as the SDK, {path}")


async def _asked(path: str) -> str:
    process = await asyncio.create_subprocess_exec(
        path, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(_PATIENCE_S):
            out, _ = await process.communicate()
    except TimeoutError:
        return "msb gave no version"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return out.decode("utf-8", "replace").strip() or "msb gave no version"


def last_failure() -> boot_failure.Cause | None:
    """Why this host failed at its most recent boot; None if it did not, or there was none. Reads files."""
    newest = _newest()
    return boot_failure.failure(newest) if newest and not boot_failure.guests_own(newest) else None


def _last_boot() -> list[Diagnosis]:
    newest = _newest()
    if not newest:
        return []
    if failed := boot_failure.failure(newest):
        return [Diagnosis("last boot", "warning", f"{newest} did not boot: {failed[0]}", failed[1])]
    return [Diagnosis("last boot", "ok", f"{newest} booted")]


def _newest() -> str:
    """The sandbox whose log was written last, except those that are booting."""
    with contextlib.suppress(OSError):
        logs = (sdk.home() / "sandboxes").glob("*/logs/runtime.log")
        newest_first = sorted(logs, key=lambda path: -path.stat().st_mtime)
        return next((path.parts[-3] for path in newest_first if not boot_failure.under_way(path.parts[-3])), "")
    return ""


def _disk() -> Diagnosis:
    home = sdk.home()
    there = next((path for path in (home, *home.parents) if path.exists()), Path("/"))
    free = shutil.disk_usage(there).free / 2**30
    text = f"{free:.1f} GiB free where {home} is"
    if not os.access(there, os.W_OK):
        return Diagnosis("disk", "warning", f"{there} cannot be written", "set MSB_HOME to a folder of your own")
    if free < LEAST_GIB:
        return Diagnosis("disk", "warning", text, "msb df shows what uses it; sandbox-console images prune frees some")
    return Diagnosis("disk", "ok", text)


async def health() -> BackendHealth:
    """Whether microVMs can boot here, according to the host and the runtime. Raises nothing but CancelledError."""
    try:
        if found := await asyncio.to_thread(kvm.problem):
            return _down(*found)
        if not kvm.TRIED and (failed := await asyncio.to_thread(last_failure)):
            return _down(f"the last boot failed: {failed[0]}", failed[1])
        module = await sdk.load()
        if await asyncio.to_thread(sdk.used):
            await sdk.call(module, "its list of sandboxes", module.Sandbox.list_with(limit=1))
    except ConsoleError as error:
        return _down(error.message, error.hint)
    return BackendHealth("microsandbox", "local", HealthState.OK, version=sdk.version())


def _down(reason: str, hint: str) -> BackendHealth:
    return BackendHealth("microsandbox", "local", HealthState.UNAVAILABLE, reason, hint, sdk.version())
