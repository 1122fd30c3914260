"""Boots, ends and removes microVMs."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal as signals
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sandbox_console.backends.common.messages import not_running, not_stopped
from sandbox_console.backends.microsandbox import boot_failure, boots, create_options, labels, ports, sdk, translate
from sandbox_console.backends.microsandbox.inventory import Inventory
from sandbox_console.backends.microsandbox.never_started import Pending
from sandbox_console.errors import BackendError, Conflict, ConsoleError, InvalidSpec, NotFound, Unsupported, UsageError
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.model.spec import SandboxSpec

_SHUTDOWN_S = 5.0
"""How long a microVM without its main process may take to shut down (0.7 s if idle) before it is killed."""

_AGAIN_S = (0.5, 2.0, 5.0, 10.0)

_LISTENS_TRIES, _LISTENS_S = 10, 0.2
"""How long to wait for its ports. A booting microVM listens on them before its guest answers."""

Secrets = Sequence[ResolvedSecret]
Boot = Callable[[], Any]


async def boot_new(
    module: Any, looker: Inventory, one: Pending, secrets: Secrets, options: create_options.Options
) -> None:
    """Start a sandbox for the first time."""
    places = await asyncio.to_thread(ports.choose, one.spec)
    own = one.id, await asyncio.to_thread(looker.installation.made)
    arguments = create_options.arguments(module, own, one.spec, secrets, options, places)
    name = one.spec.name
    try:
        boot_it = functools.partial(module.Sandbox.create, name, **arguments)
        await _run(module, name, boot_it, one.spec, secrets, functools.partial(boot_it, replace=True))
    except asyncio.CancelledError:
        await run_to_completion(_undone(module, name))
        raise
    finally:
        with contextlib.suppress(ConsoleError):  # a boot that failed leaves a row, which then shows the reason
            await looker.handle(module, SandboxRef("microsandbox", "local", one.id))
            await asyncio.to_thread(looker.pending.remove, one)


async def boot_again(module: Any, looker: Inventory, handle: Any, secrets: Secrets) -> None:
    """Start a sandbox again. Does nothing if it is running."""
    view = translate.view(handle)
    if view.status == "paused":
        raise Conflict(f"sandbox {view.shown_name} is paused", hint="resume it")
    if view.status == "running":
        job = await looker.main(module, handle)
        if not view.spec or not view.spec.command or (job is not None and job.state in ("starting", "running")):
            return
        if job is None and (await looker.inspect(view.ref)).status is Status.STARTING:
            raise Conflict(f"sandbox {view.shown_name} is being started", hint="wait until it runs, or stop it first")
        await power_off(module, handle)
    if view.spec is not None and view.ports:
        await _placed(module, handle, view, view.spec)
    if fresh := {secret.name: {"value": secret.value} for secret in secrets if secret.inject == "placeholder"}:
        subject = f"the secrets of {view.shown_name}"
        await sdk.call(module, subject, handle.modify(secrets=fresh, policy=module.ModificationPolicy.NEXT_START))
    try:
        boot_it = functools.partial(module.Sandbox.start, view.name, detached=True)
        await _run(module, view.name, boot_it, view.spec, secrets)
    except asyncio.CancelledError:
        await run_to_completion(_ended(module, view.name))
        raise


async def _run(
    module: Any, name: str, boot_it: Boot, spec: SandboxSpec | None, secrets: Secrets, over_it: Boot | None = None
) -> None:
    """Boot it and start its command. If that cannot be run, nothing is left running."""
    await asyncio.to_thread(sdk.close_home)
    machine = await booted(module, name, boot_it, over_it)
    if spec is None:
        return
    try:
        await published(module, name)
        await launch(module, machine, spec, secrets)
    except ConsoleError:
        await run_to_completion(_ended(module, name))
        raise


async def published(module: Any, name: str) -> None:
    """Check that a microVM that has booted has its ports. Raises Conflict if something else took one first."""
    view = translate.view(await sdk.call(module, f"sandbox {name}", module.Sandbox.get(name)))
    pid = (await asyncio.to_thread(boots.processes)).get(view.id) if view.ports else None
    if pid is None:
        return
    for turn in range(_LISTENS_TRIES):
        there = await asyncio.to_thread(ports.listening, pid, view.ports)
        if not (lost := [port for port in view.ports if port.host_address not in there]):
            return
        await asyncio.sleep(_LISTENS_S if turn < _LISTENS_TRIES - 1 else 0)
    raise ports.taken(view.shown_name, lost[0])


async def _placed(module: Any, handle: Any, view: translate.View, spec: SandboxSpec) -> None:
    """Choose the addresses of its ports for the next boot. Free ones that are taken by now are replaced."""
    places = await asyncio.to_thread(ports.choose, spec, view.ports)
    if old := tuple(port for port in view.ports if port not in places):
        new = tuple(port for port in places if port not in view.ports)
        changes = ports.bindings(module, new), ports.removals(module, old)
        request = handle.modify(ports=changes[0], ports_rm=changes[1], policy=module.ModificationPolicy.NEXT_START)
        await sdk.call(module, f"the ports of {view.shown_name}", request)


async def _ended(module: Any, name: str) -> None:
    """Kill a microVM whose start failed, as its boot goes on by itself and nobody would start its command."""
    with contextlib.suppress(ConsoleError):
        handle = await sdk.call(module, f"sandbox {name}", module.Sandbox.get(name))
        await sdk.call(module, f"sandbox {name}", handle.kill())


async def _undone(module: Any, name: str) -> None:
    """Undo a first start: the stored sandbox waits for the next one."""
    with contextlib.suppress(ConsoleError):
        await destroy(module, await sdk.call(module, f"sandbox {name}", module.Sandbox.get(name)))


async def booted(module: Any, name: str, boot_it: Boot, over_it: Boot | None = None) -> Any:
    """Wait for a boot. Raises BackendError with the cause from the runtime's logs.

    ``over_it`` boots it over a folder that an earlier attempt has left, and for which the runtime knows no sandbox.
    """
    try:
        return await _insisted(module, name, boot_it, over_it or boot_it)
    except (BackendError, UsageError) as error:  # the SDK also reports "invalid config" for a guest that is gone
        found = await asyncio.to_thread(boot_failure.failure, name) or boot_failure.cause(str(error))
        if found is None and (reason := (await asyncio.to_thread(boots.ended, name)).reason):
            found = f"it ended at once: {reason}", "give it more time"
        if found is None:
            raise
        raise BackendError(f"sandbox {name} did not boot: {found[0]}", hint=found[1]) from error


async def _insisted(module: Any, name: str, boot_it: Boot, over_it: Boot) -> Any:
    """Wait for a boot; try again if the SDK wrongly reports an old runtime, or a sandbox that exists already.

    The SDK asks ``msb`` what it can do, and takes a slow answer, on a loaded machine, for an old runtime (0.7.11). Such
    an attempt may leave a sandbox, or only a folder.
    """
    for number, wait_s in enumerate(_AGAIN_S):
        try:
            return await sdk.call(module, f"sandbox {name}", boot_it())
        except (Unsupported, Conflict) as error:
            known = await sdk.exists(module, name)
            if not _by_mistake(error, of_ours=number > 0 or not known):
                raise
            await asyncio.sleep(wait_s)
            if known:
                boot_it = functools.partial(module.Sandbox.start, name, detached=True)
            elif taken(error):
                boot_it = over_it
    return await sdk.call(module, f"sandbox {name}", boot_it())


def _by_mistake(error: ConsoleError, *, of_ours: bool) -> bool:
    """Whether a boot is worth another attempt; ``of_ours`` says that an earlier attempt left what is in its way."""
    return "selected msb runtime" in error.message or (of_ours and taken(error))


def taken(error: ConsoleError) -> bool:
    """Whether another sandbox has the name."""
    return type(error.__cause__).__name__ == "SandboxAlreadyExistsError"


async def launch(module: Any, machine: Any, spec: SandboxSpec, secrets: Secrets) -> None:
    """Hand over the secrets that are files, then start the main process."""
    subject = f"the secrets of {spec.name}"
    for secret in secrets:
        if secret.inject == "file":
            await sdk.call(
                module, subject, machine.fs.write(f"{create_options.SECRETS}/{secret.name}", secret.value.encode())
            )
    if not spec.command:
        return
    try:
        options = {key: value for key, value in exec_options(spec, secrets).items() if value}
        await sdk.result(machine.exec_detached(spec.command[0], list(spec.command[1:]), **options))
    except module.MicrosandboxError as error:
        raise BackendError(
            f"the command of {spec.name} cannot be run: {error}", hint="check that its image has the program"
        ) from error


def exec_options(
    spec: SandboxSpec | None, secrets: Secrets, env: Mapping[str, str] | None = None, workdir: str | None = None,
    user: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The options of a command. The spec's own are passed each time: a restored sandbox's config has lost them."""
    own = spec or SandboxSpec("")
    return {
        "env": {**own.env, **variables(secrets), **(env or {})},
        "cwd": workdir or own.workdir,
        "user": user or own.user,
    }


def variables(secrets: Secrets) -> dict[str, str]:
    """The secrets that are variables. Each process gets them, so that the runtime's database never has them."""
    return {secret.name: secret.value for secret in secrets if secret.inject == "env"}


async def stop(module: Any, looker: Inventory, handle: Any, grace_s: float) -> None:
    """Send SIGTERM to the main process, and kill everything after the grace."""
    view = translate.view(handle)
    if view.status in ("stopped", "crashed"):
        return
    if view.status == "paused":  # it cannot receive a signal
        await sdk.call(module, f"sandbox {view.shown_name}", handle.kill())
        return
    info = await looker.main(module, handle)
    if info is not None and info.state == "running":
        await _end_main(module, handle, info.id, grace_s)
        await power_off(module, handle)
    else:
        await power_off(module, handle, grace_s)


async def _end_main(module: Any, handle: Any, id: str, grace_s: float) -> None:
    job = await sdk.call(module, "its main process", handle.get_job(id))
    with contextlib.suppress(module.MicrosandboxError):  # it may be ending by itself at this moment
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
    """Remember the signal with which the console ended a main process, as the runtime reports -1 for any."""
    with contextlib.suppress(module.MicrosandboxError):
        await sdk.result(handle.modify(labels={labels.ENDED: f"{id} {code}"}))


async def power_off(module: Any, handle: Any, grace_s: float = _SHUTDOWN_S) -> None:
    """Shut the microVM down, and kill it if that takes too long."""
    subject = f"sandbox {handle.name}"
    try:
        await sdk.result(handle.stop(max(grace_s, 0.1)))
    except (module.StopTimeoutError, module.SandboxStopTimedOutError):
        await sdk.call(module, subject, handle.kill())
    except module.SandboxNotRunningError:
        return
    except module.MicrosandboxError:
        await sdk.call(module, subject, handle.kill())


async def kill(module: Any, looker: Inventory, handle: Any, name: str) -> None:
    """Send a signal to the main process; SIGKILL ends the sandbox."""
    view = translate.view(handle)
    if view.status in ("stopped", "crashed"):
        raise not_running(view.shown_name, view.status)
    number = getattr(signals, name, None)
    if not isinstance(number, signals.Signals):
        raise InvalidSpec({"signal": f"{name!r} is not a signal's name"}, hint="for example SIGTERM")
    info = await looker.main(module, handle)
    if number is not signals.SIGKILL:
        if info is None or info.state != "running" or view.status != "running":
            raise Conflict(f"sandbox {view.shown_name} has no main process to send {name} to", hint="SIGKILL ends it")
        job = await sdk.call(module, "its main process", handle.get_job(info.id))
        await sdk.call(module, "its main process", job.signal(number))
        return
    if info is not None and info.state == "running":
        await _note_end(module, handle, info.id, 128 + number)
    await sdk.call(module, f"sandbox {view.shown_name}", handle.kill())


async def remove(module: Any, looker: Inventory, ref: SandboxRef, force: bool) -> None:
    """Remove a sandbox with all its data. Raises Conflict if it is running, unless ``force``."""
    if not force and (shown := await looker.inspect(ref)).status.live:
        raise not_stopped(shown.name, shown.status)
    await destroy(module, await looker.handle(module, ref))


async def destroy(module: Any, handle: Any) -> None:
    """Remove it in any state; it is no error if it is gone."""
    subject = f"sandbox {handle.name}"
    try:
        await sdk.call(module, subject, handle.destroy(force=True))
    except NotFound:
        return
    except ConsoleError:
        # A boot in progress locks it for a moment.
        await sdk.call(module, subject, handle.kill())
        await sdk.call(module, subject, handle.destroy(force=True))
