"""Booting, ending and changing microVMs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import signal as signals
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from sandbox_console.backends.microsandbox import boot, labels, made, sdk, translate
from sandbox_console.backends.microsandbox.look import Looker
from sandbox_console.backends.microsandbox.pending import Pending
from sandbox_console.backends.microsandbox.translate import View
from sandbox_console.errors import BackendError, Conflict, ConsoleError, InvalidSpec, NotFound, Unsupported, UsageError
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

_SHUTDOWN_S = 5.0
"""For a microVM whose main process has ended to shut down by itself; then it is killed. It takes 0.7 s unloaded."""

_AGAIN_S = (0.5, 2.0, 5.0, 10.0)

Secrets = Sequence[ResolvedSecret]


async def boot_new(module: Any, looker: Looker, one: Pending, secrets: Secrets, options: made.Options) -> None:
    """The first start of a sandbox."""
    arguments = made.arguments(module, one.id, one.spec, secrets, options)
    try:
        machine = await booted(module, one.spec.name, lambda: module.Sandbox.create(one.spec.name, **arguments))
    finally:
        with contextlib.suppress(ConsoleError):  # a boot that failed leaves a row, which then tells why
            await looker.handle(module, SandboxRef("microsandbox", "local", one.id))
            await asyncio.to_thread(looker.pending.remove, one)
    await launch(module, machine, one.spec, secrets)


async def boot_again(module: Any, looker: Looker, handle: Any, secrets: Secrets) -> None:
    """A later start. A no-op where it runs."""
    seen = translate.view(handle)
    if seen.status == "paused":
        raise Conflict(f"sandbox {seen.shown_name} is paused", hint="resume it")
    if seen.status == "running":
        job = await looker.main(module, handle)
        if not seen.spec or not seen.spec.command or (job is not None and job.state in ("starting", "running")):
            return
        if job is None and (await looker.inspect(seen.ref)).status is Status.STARTING:
            raise Conflict(f"sandbox {seen.shown_name} is being started", hint="wait until it runs, or stop it first")
        await power_off(module, handle)
    if fresh := {one.name: {"value": one.value} for one in secrets if one.inject == "placeholder"}:
        what = f"the secrets of {seen.shown_name}"
        await sdk.call(module, what, handle.modify(secrets=fresh, policy=module.ModificationPolicy.NEXT_START))
    machine = await booted(module, seen.name, lambda: module.Sandbox.start(seen.name, detached=True))
    if seen.spec is not None:
        await launch(module, machine, seen.spec, secrets)


async def booted(module: Any, name: str, boot_it: Callable[[], Any]) -> Any:
    """Wait for a boot. Raises BackendError with the cause off the runtime's logs."""
    try:
        return await _insisted(module, name, boot_it)
    except BackendError as error:
        found = await asyncio.to_thread(boot.failure, name) or boot.cause(str(error))
        if found is None:
            raise
        raise BackendError(f"sandbox {name} did not boot: {found[0]}", hint=found[1]) from error


async def _insisted(module: Any, name: str, boot_it: Callable[[], Any]) -> Any:
    """Wait for a boot; again where the SDK says that the runtime is too old.

    It asks ``msb`` what it can do, and takes a slow answer, on a loaded machine, for an old runtime (0.7.11).
    """
    for number, wait_s in enumerate(_AGAIN_S):
        try:
            return await sdk.call(module, f"sandbox {name}", boot_it())
        except (Unsupported, Conflict) as error:
            if not _by_mistake(error, again=number > 0):
                raise
        await asyncio.sleep(wait_s)
        if await sdk.exists(module, name):  # the attempt left it there
            boot_it = functools.partial(module.Sandbox.start, name, detached=True)
    return await sdk.call(module, f"sandbox {name}", boot_it())


def _by_mistake(error: ConsoleError, *, again: bool) -> bool:
    """Whether a boot is worth another try: ``again``, what an attempt before has left may be in its way."""
    return "selected msb runtime" in error.message or (again and taken(error))


def taken(error: ConsoleError) -> bool:
    """Whether another sandbox has the name."""
    return type(error.__cause__).__name__ == "SandboxAlreadyExistsError"


async def launch(module: Any, machine: Any, spec: SandboxSpec, secrets: Secrets) -> None:
    """Hand over the secrets that are files, then start the main process."""
    what = f"the secrets of {spec.name}"
    for secret in secrets:
        if secret.inject == "file":
            await sdk.call(module, what, machine.fs.write(f"{made.SECRETS}/{secret.name}", secret.value.encode()))
    if not spec.command:
        return
    try:
        await sdk.result(machine.exec_detached(spec.command[0], list(spec.command[1:]), env=variables(secrets)))
    except module.MicrosandboxError as error:
        raise BackendError(
            f"the command of {spec.name} cannot be run: {error}", hint="see that its image has the program"
        ) from error


def variables(secrets: Secrets) -> dict[str, str]:
    """The secrets that are variables: given to each process, so that the runtime's database never has them."""
    return {secret.name: secret.value for secret in secrets if secret.inject == "env"}


async def stop(module: Any, looker: Looker, handle: Any, grace_s: float) -> None:
    """SIGTERM to the main process; after the grace everything is killed."""
    seen = translate.view(handle)
    if seen.status in ("stopped", "crashed"):
        return
    if seen.status == "paused":  # it can take no signal
        await sdk.call(module, f"sandbox {seen.shown_name}", handle.kill())
        return
    info = await looker.main(module, handle)
    if info is not None and info.state == "running":
        await _end_main(module, handle, info.id, grace_s)
        await power_off(module, handle)
    else:
        await power_off(module, handle, grace_s)


async def _end_main(module: Any, handle: Any, id: str, grace_s: float) -> None:
    job = await sdk.call(module, "its main process", handle.get_job(id))
    with contextlib.suppress(module.MicrosandboxError):  # it may end at this moment by itself
        await sdk.result(job.signal(signals.SIGTERM))
    code = 128 + signals.SIGTERM
    try:
        async with asyncio.timeout(grace_s):
            if (await sdk.result(job.wait())).code >= 0:
                return
    except TimeoutError:
        code = await _kill_main(module, job)
    except module.MicrosandboxError:
        return  # the sandbox ended meanwhile
    await _note_end(module, handle, id, code)


async def _kill_main(module: Any, job: Any) -> int:
    with contextlib.suppress(module.MicrosandboxError, TimeoutError):
        await sdk.result(job.kill())
        async with asyncio.timeout(_SHUTDOWN_S):
            await sdk.result(job.wait())
    return 128 + signals.SIGKILL


async def _note_end(module: Any, handle: Any, id: str, code: int) -> None:
    """Keep by which signal the console ended a main process: the runtime tells -1 for any."""
    with contextlib.suppress(module.MicrosandboxError):
        await sdk.result(handle.modify(labels={labels.ENDED: f"{id} {code}"}))


async def power_off(module: Any, handle: Any, grace_s: float = _SHUTDOWN_S) -> None:
    """Shut the microVM down, and kill it where it does not in time."""
    what = f"sandbox {handle.name}"
    try:
        await sdk.result(handle.stop(max(grace_s, 0.1)))
    except (module.StopTimeoutError, module.SandboxStopTimedOutError):
        await sdk.call(module, what, handle.kill())
    except module.SandboxNotRunningError:
        return
    except module.MicrosandboxError:
        await sdk.call(module, what, handle.kill())


async def kill(module: Any, looker: Looker, handle: Any, name: str) -> None:
    """Send a signal to the main process; SIGKILL ends the sandbox."""
    seen = translate.view(handle)
    if seen.status in ("stopped", "crashed"):
        raise Conflict(f"sandbox {seen.shown_name} does not run")
    number = getattr(signals, name, None)
    if not isinstance(number, signals.Signals):
        raise InvalidSpec({"signal": f"{name!r} is not a signal's name"}, hint="for example SIGTERM")
    info = await looker.main(module, handle)
    if number is not signals.SIGKILL:
        if info is None or info.state != "running" or seen.status != "running":
            raise Conflict(f"sandbox {seen.shown_name} has no main process to send {name} to", hint="SIGKILL ends it")
        job = await sdk.call(module, "its main process", handle.get_job(info.id))
        await sdk.call(module, "its main process", job.signal(number))
        return
    if info is not None and info.state == "running":
        await _note_end(module, handle, info.id, 128 + number)
    await sdk.call(module, f"sandbox {seen.shown_name}", handle.kill())


async def remove(module: Any, looker: Looker, ref: SandboxRef, force: bool) -> None:
    """Remove a sandbox and all that the runtime keeps of it. Raises Conflict where it runs and not ``force``."""
    if not force and (shown := await looker.inspect(ref)).status.live:
        raise Conflict(f"sandbox {shown.name} runs", hint="remove it with --force")
    await destroy(module, await looker.handle(module, ref))


async def destroy(module: Any, handle: Any) -> None:
    """Remove it whatever it does; one that is gone is no error."""
    what = f"sandbox {handle.name}"
    try:
        await sdk.call(module, what, handle.destroy(force=True))
    except NotFound:
        return
    except ConsoleError:
        # A boot that is under way holds it for a moment.
        await sdk.call(module, what, handle.kill())
        await sdk.call(module, what, handle.destroy(force=True))


async def rename(module: Any, looker: Looker, ref: SandboxRef, name: str) -> None:
    """Give another name, in the console: the runtime keeps its own. Raises Conflict where it is taken."""
    if any(one.name == name and one.ref != ref for one in await looker.list()):
        raise Conflict(f"a sandbox called {name!r} is there already")
    if one := await asyncio.to_thread(looker.pending.get, ref.id):
        await asyncio.to_thread(looker.pending.change, one, structs.replace(one.spec, name=name))
        return
    handle = await looker.handle(module, ref)
    if not translate.view(handle).managed:
        raise Conflict(f"sandbox {handle.name} is not the console's to rename")
    await _modify(module, handle, labels={labels.NAME: name})


async def update(module: Any, looker: Looker, ref: SandboxRef, spec: SandboxSpec) -> None:
    """Bring labels, cpus and memory to the spec. Raises Conflict where the microVM was made for less."""
    if one := await asyncio.to_thread(looker.pending.get, ref.id):
        await asyncio.to_thread(looker.pending.change, one, spec)
        return
    handle = await looker.handle(module, ref)
    seen = translate.view(handle)
    await _resize(module, handle, seen, spec)
    kept = labels.users(seen.labels)
    new = {**spec.labels, labels.SPEC: json.dumps(spec.to_dict(), ensure_ascii=False)}
    await _modify(module, handle, labels=new, labels_rm=[key for key in kept if key not in spec.labels] or None)


async def _resize(module: Any, handle: Any, seen: View, spec: SandboxSpec) -> None:
    changes: dict[str, int] = {}
    if seen.spec is None or spec.memory_mib != seen.spec.memory_mib:
        changes["memory"] = spec.memory_mib or made.DEFAULT_MIB
    if seen.spec is None or spec.cpus != seen.spec.cpus:
        changes["cpus"] = made.whole_cpus(spec)
    if changes:
        await _modify(module, handle, **changes)


async def _modify(module: Any, handle: Any, **changes: Any) -> None:
    live = str(handle.status) in ("running", "paused")
    policy = module.ModificationPolicy.NO_RESTART if live else module.ModificationPolicy.NEXT_START
    try:
        plan = await sdk.call(module, f"sandbox {handle.name}", handle.modify(policy=policy, **changes))
    except (BackendError, UsageError) as error:
        _, words, why = error.message.partition("cannot apply modification: ")
        raise _refused(handle, why) if words else error from error.__cause__
    if not plan["applied"]:
        told = "; ".join(f"{one['field']}: {one['message']}" for one in plan["conflicts"])
        raise _refused(handle, told or "the runtime refused it")


def _refused(handle: Any, why: str) -> Conflict:
    return Conflict(f"sandbox {handle.name} cannot be changed so: {why}", hint="recreate it")
