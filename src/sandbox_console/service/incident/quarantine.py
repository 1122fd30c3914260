"""A quarantine as a person requests it: the planned steps, the action, and what is kept of the sandbox."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, convert

from sandbox_console.errors import ConsoleError, Unsupported
from sandbox_console.hostfs.files import NewFile
from sandbox_console.model.action import Quarantine, Release, TakeSnapshot
from sandbox_console.model.capability import Capability
from sandbox_console.model.quarantine import Step
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.service.console import Console
from sandbox_console.service.gate.gate import Consent
from sandbox_console.service.incident.bundle import bundle
from sandbox_console.service.incident.bundle_file import writer

CONTAINS = ("hold", "egress", "freeze")
"""The steps without which a sandbox is not contained."""


class Planned(Struct, frozen=True):
    """A planned step, and what undoes it. ``undo`` is empty if the step cannot be undone."""

    what: str
    text: str
    undo: str = ""


class Quarantined(Struct, frozen=True):
    """What was done. ``audit_id`` is its audit row."""

    audit_id: int
    steps: tuple[Step, ...]

    @property
    def contained(self) -> bool:
        """Whether every step succeeded that keeps the sandbox from doing harm."""
        return all(step.done for step in self.steps if step.what in CONTAINS)


async def plan(console: Console, sandbox: Sandbox, *, keep: bool = True) -> Sequence[Planned]:
    """The steps of a quarantine, as far as the backend supports them. Raises ConsoleError."""
    can = await console.capabilities(sandbox.ref.backend, sandbox.ref.host)
    found = [Planned("hold", "refuse commands, shells, changes, start and removal", "they are allowed again")]
    if sandbox.status.live:
        found.append(Planned("sessions", "end its shells and forwards"))
    if sandbox.spec is None or sandbox.spec.egress:
        found.append(_if(can.has(Capability.EGRESS_UPDATE), "egress", "deny every connection", "its rules are restored",
                         can.reason(Capability.EGRESS_UPDATE)))  # fmt: skip
    if sandbox.status.live and sandbox.spec is not None and sandbox.spec.ports:
        found.append(Planned("ports", "close its published ports, if the backend can", "they are opened again"))
    hold = await asyncio.to_thread(console.holds.get, sandbox.ref)
    if sandbox.status.live and (sandbox.status is not Status.PAUSED or (hold and hold.frozen)):
        found.append(_if(can.has(Capability.PAUSE), "freeze", "freeze every process", "it is thawed",
                         can.reason(Capability.PAUSE)))  # fmt: skip
    if sandbox.spec is not None and (sandbox.spec.max_duration_s or sandbox.spec.idle_timeout_s):
        found.append(Planned("lifetimes", "suspend its time limits", "they apply again"))
    if keep:
        found.append(Planned("evidence", f"write a bundle to {evidence_folder(console)}"))
        if can.has(Capability.SNAPSHOT):
            found.append(Planned("snapshot", "take a snapshot"))
    return found


def _if(can: bool, name: str, text: str, undo: str, reason: str) -> Planned:
    return Planned(name, text, undo) if can else Planned(name, f"cannot be done: {reason}")


async def quarantine(
    console: Console, sandbox: Sandbox, reason: str = "", *, consent: Consent = Consent(), keep: bool = True  # noqa: B008 - frozen
) -> Quarantined:  # fmt: skip
    """Contain a sandbox, then keep what evidence can be kept. Raises what the action raises."""
    result = await console.perform(Quarantine(sandbox.ref, reason), consent=consent).result()
    steps = convert(result.details.get("steps", []), tuple[Step, ...])
    kept = await keep_evidence(console, sandbox.ref, consent) if keep else ()
    return Quarantined(result.audit_id, (*steps, *kept))


async def release(console: Console, sandbox: Sandbox, *, consent: Consent = Consent()) -> Quarantined:  # noqa: B008 - frozen
    """End a quarantine. Raises what the action raises."""
    result = await console.perform(Release(sandbox.ref), consent=consent).result()
    return Quarantined(result.audit_id, convert(result.details.get("steps", []), tuple[Step, ...]))


async def keep_evidence(console: Console, ref: SandboxRef, consent: Consent) -> tuple[Step, ...]:
    """Keep a bundle in the console's own state, and a snapshot if the backend has snapshots. Raises nothing itself."""
    steps = [await _step("evidence", _bundle(console, ref, consent))]
    try:
        can = (await console.capabilities(ref.backend, ref.host)).has(Capability.SNAPSHOT)
    except ConsoleError:
        can = False
    if can:
        steps.append(await _step("snapshot", _snapshot(console, ref, consent)))
    return tuple(steps)


def evidence_folder(console: Console) -> Path:
    """The folder with the bundles of quarantines."""
    return console.audit_log.path.parents[1] / "evidence"


async def _step(name: str, work: object) -> Step:
    try:
        return Step(name, done=True, note=str(await work))  # type: ignore[misc]
    except ConsoleError as error:
        return Step(name, done=False, note=error.message)
    except OSError as error:
        return Step(name, done=False, note=f"{error.strerror}")


async def _bundle(console: Console, ref: SandboxRef, consent: Consent) -> str:
    sandbox = await console.inspect(ref)
    folder = evidence_folder(console)
    await asyncio.to_thread(folder.mkdir, 0o700, parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    name = re.sub(r"[^A-Za-z0-9._-]", "_", sandbox.name)[:60]
    path = folder / f"{stamp}-{name}-{re.sub('[^A-Za-z0-9]', '', ref.id)[:12]}.tar.zst"
    file = await asyncio.to_thread(NewFile, path, await console.ground())

    try:
        made = await bundle(console, [sandbox], writer(file, path), until=time.time(), consent=lambda _: consent)
        for failure in made.failures.values():
            raise failure
        await asyncio.to_thread(file.keep)
    finally:
        file.drop()
    return str(path)


async def _snapshot(console: Console, ref: SandboxRef, consent: Consent) -> str:
    name = f"quarantine-{time.strftime('%Y%m%dt%H%M%Sz', time.gmtime())}"
    try:
        await console.perform(TakeSnapshot(ref, name, full=True), consent=consent).result()
    except Unsupported:
        await console.perform(TakeSnapshot(ref, name), consent=consent).result()
    return name
