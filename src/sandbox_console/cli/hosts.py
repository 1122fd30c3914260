"""Which backend and host a verb without a sandbox name refers to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec import Struct

from sandbox_console.cli import lookup
from sandbox_console.cli.context import Context
from sandbox_console.cli.lookup import host_label
from sandbox_console.errors import BackendUnreachable, Unsupported, UsageError
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import BackendHealth, HostKey
from sandbox_console.service import Console


class Able(Struct, frozen=True):
    """The hosts that answer and have a capability, and those that do not answer and may have it."""

    hosts: list[HostKey]
    doubts: list[BackendHealth]


async def able(context: Context, console: Console, capability: Capability) -> Able:
    """The hosts in ``--backend`` that have the capability.

    ``--only-answering`` leaves no doubts. Raises UsageError for an unknown backend, BackendUnreachable if only silent
    hosts may have it, and Unsupported with each one's reason if none has it.
    """
    healths = [health async for health in console.healths(_asked(context, console))]
    return await _judged(context, console, capability, healths)


async def able_as_answered(context: Context, console: Console, capability: Capability) -> AsyncGenerator[HostKey, None]:
    """Like ``able``, host by host as they answer.

    It says which hosts it still waits for, and at the end warns of those that did not answer.
    """
    healths: list[BackendHealth] = []
    async with aclosing(console.healths_as_answered(_asked(context, console), lookup.PATIENCE_S)) as parts:
        async for answered, waiting in parts:
            healths += answered
            for health in answered:
                if health.ok and (await console.capabilities(health.backend, health.host)).has(capability):
                    yield health.backend, health.host
            lookup.say_waiting(context, waiting)
    await _judged(context, console, capability, healths)
    lookup.warn_of_the_silent(context, console, healths)


def _asked(context: Context, console: Console) -> list[HostKey]:
    name, host = context.backend
    asked = [key for key in console.places if name in ("", key[0]) and host in ("", key[1])]
    if not asked:
        raise UsageError(f"no backend is called {context.args.backend!r}", hint="sandbox-console doctor")
    return asked


async def _judged(context: Context, console: Console, capability: Capability, healths: Sequence[BackendHealth]) -> Able:
    found, reasons = list[HostKey](), list[str]()
    for health in healths:
        if not health.ok:
            reasons.append(f"{host_label(health)} does not answer: {health.reason}")
            continue
        capabilities = await console.capabilities(health.backend, health.host)
        if capabilities.has(capability):
            found.append((health.backend, health.host))
        else:
            reasons.append(f"{health.backend}: {capabilities.reason(capability)}")
    doubts = [] if context.args.only_answering else [one for one in healths if console.may_have(one, capability)]
    if not found:
        if doubts or all(not health.ok for health in healths):
            raise BackendUnreachable("; ".join(reasons), hint=(doubts or healths)[0].hint)
        raise Unsupported(f"{capability}: " + "; ".join(reasons), hint="sandbox-console doctor")
    return Able(sorted(found, key=console.places.index), doubts)


async def only(context: Context, console: Console, capability: Capability) -> HostKey:
    """The one backend to use: the configured default if it has the capability, else the only one.

    Raises UsageError if there are several, and BackendUnreachable if one that does not answer may be meant.
    """
    found = await able(context, console, capability)
    default = console.config.backend
    known = {key[0] for key in found.hosts} | {one.backend for one in found.doubts}
    keys = [key for key in found.hosts if default not in known or key[0] == default]
    refuse_doubts([one for one in found.doubts if default not in known or one.backend == default], "may be meant")
    return one_host(keys, str(capability))


def refuse_doubts(doubts: Sequence[BackendHealth], problem: str) -> None:
    """Raise BackendUnreachable for the first host that does not answer, if there is one."""
    for one in doubts:
        hint = "name another with --backend, or give --only-answering"
        raise BackendUnreachable(f"{host_label(one)} does not answer and {problem}: {one.reason}", hint=hint)


def one_host(found: Sequence[HostKey], subject: str) -> HostKey:
    """The only place. Raises UsageError that names all of them if there are several."""
    if len(found) > 1:
        names = ", ".join("/".join(key) for key in found)
        raise UsageError(f"{subject}: more than one backend has it: {names}", hint=f"--backend {'/'.join(found[0])}")
    return found[0]
