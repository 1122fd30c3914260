"""Which backend and host a verb without a sandbox name refers to."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox_console.cli.context import Context
from sandbox_console.cli.lookup import warn_of_the_silent
from sandbox_console.errors import BackendUnreachable, Unsupported, UsageError
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import HostKey
from sandbox_console.service import Console


async def able(context: Context, console: Console, capability: Capability, *, warn: bool = False) -> list[HostKey]:
    """The backends in ``--backend`` that answer and have the capability; ``warn`` reports the others.

    Raises UsageError for an unknown one, BackendUnreachable if all that have it are silent, and Unsupported with each
    one's reason if none has it.
    """
    name, host = context.backend
    healths = [
        backend_health
        for backend_health in await console.health()
        if name in ("", backend_health.backend) and host in ("", backend_health.host)
    ]
    if not healths:
        raise UsageError(f"no backend is called {context.args.backend!r}", hint="sandbox-console doctor")
    found, reasons = list[HostKey](), list[str]()
    for health in healths:
        capabilities = await console.capabilities(health.backend, health.host)
        if not health.ok:
            reasons.append(f"{health.backend} does not answer: {health.reason}")
        elif capabilities.has(capability):
            found.append((health.backend, health.host))
        else:
            reasons.append(f"{health.backend}: {capabilities.reason(capability)}")
    if found:
        if warn:
            warn_of_the_silent(context, console, healths)
        return found
    if all(not health.ok for health in healths):
        raise BackendUnreachable("; ".join(reasons), hint=healths[0].hint)
    raise Unsupported(f"{capability}: " + "; ".join(reasons), hint="sandbox-console doctor")


async def only(context: Context, console: Console, capability: Capability) -> HostKey:
    """The one backend to use: the configured default if it has the capability, else the only one. Raises UsageError."""
    found = await able(context, console, capability)
    default = [host_key for host_key in found if host_key[0] == console.config.backend]
    return one_place(default or found, str(capability))


def one_place(found: Sequence[HostKey], what: str) -> HostKey:
    """The only place. Raises UsageError that names all of them if there are several."""
    if len(found) > 1:
        names = ", ".join("/".join(host_key) for host_key in found)
        raise UsageError(f"{what}: more than one backend has it: {names}", hint=f"--backend {'/'.join(found[0])}")
    return found[0]
