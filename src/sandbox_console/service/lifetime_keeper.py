"""The process that ends sandboxes whose time has run out. It opens the backend and audits each end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from sandbox_console.audit.journal import Journal
from sandbox_console.audit.retention import RetentionPolicy
from sandbox_console.backends import registry
from sandbox_console.backends.abilities import EnforcesLifetimes
from sandbox_console.backends.base import BackendSettings
from sandbox_console.errors import AuditUnavailable, ConfigError, ConsoleError
from sandbox_console.model.action import Permit
from sandbox_console.model.audit import Outcome
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service.config import load
from sandbox_console.service.paths import find_paths

LOG_S = 10.0
"""How long to wait for the log before a sandbox is ended without it. The end is then recorded later."""

_LOG_FAILS = (AuditUnavailable, TimeoutError)


def main(backend: str, host: str, folder: str, engine: str, lock: int) -> int:
    """Hold one engine's sandboxes to their time limits. ``lock`` proves that no other process does."""
    os.set_inheritable(lock, False)
    os.umask(0o077)
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    with suppress(asyncio.CancelledError):
        asyncio.run(_keep(backend, host, Path(folder), engine))
    return 0


async def _keep(name: str, host: str, folder: Path, engine: str) -> None:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    provider = registry.load(registry.available()[name])
    [backend] = provider.backends(BackendSettings(folder, {getattr(provider, "hosts_option", "contexts"): [host]}))
    if not isinstance(backend, EnforcesLifetimes):
        raise ConfigError(f"{name} has no keeper process")
    try:
        await backend.enforce(engine, Recorder(_log_beside(name, folder), f"keeper:{name}/{host}"))
    finally:
        await backend.close()


def _log_beside(backend: str, folder: Path) -> Path | None:
    """The audit log of the console whose state the folder is in; None if no console of this environment has it."""
    paths = find_paths()
    return paths.audit_db if paths.backend(backend) == folder else None


class Recorder:
    """Records ends. The log is open only while one is written, so that it can be rotated as usual."""

    def __init__(self, path: Path | None, actor: str) -> None:
        self._path, self._actor = path, actor

    async def __call__(self, ref: SandboxRef, reason: str, effect: Callable[[], Awaitable[None]] | None) -> bool:
        if self._path is None:
            if effect is not None:
                await effect()
            return True
        journal: Journal | None = None
        try:
            journal, permit = await self._begun(self._path, ref, reason, late=effect is None)
        except _LOG_FAILS:
            if effect is not None:
                await effect()
            return False
        try:
            return await _ended(journal, permit, effect)
        finally:
            with suppress(*_LOG_FAILS):
                await journal.close()

    async def _begun(self, path: Path, ref: SandboxRef, reason: str, *, late: bool) -> tuple[Journal, Permit]:
        async with asyncio.timeout(LOG_S):
            journal = await Journal.open(path, self._actor, await asyncio.to_thread(_keep_of_log))
            try:
                body = {"reason": reason, **({"late": True} if late else {})}
                return journal, await journal.begin("stop", ref.backend, str(ref), body)
            except BaseException:
                await journal.close()
                raise


async def _ended(journal: Journal, permit: Permit, effect: Callable[[], Awaitable[None]] | None) -> bool:
    began, outcome, body = time.monotonic_ns(), Outcome.CANCELLED, dict[str, str]()
    try:
        if effect is not None:
            await effect()
        outcome = Outcome.OK
    except ConsoleError as error:
        outcome, body = Outcome.FAILED, {"code": error.code, "error": error.message}
        raise
    finally:
        with suppress(*_LOG_FAILS):  # the next console that opens the log ends the attempt as unknown
            await journal.finish(permit, outcome, (time.monotonic_ns() - began) // 1000, body)
    return True


def _keep_of_log() -> RetentionPolicy:
    try:
        return load(find_paths()).audit.keep
    except ConsoleError:
        return RetentionPolicy()
