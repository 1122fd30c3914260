"""Finds the sandboxes that NAMEs mean, and reports hosts that did not answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from sandbox_console.cli import json_output
from sandbox_console.cli.context import Context
from sandbox_console.cli.formatting import moment
from sandbox_console.errors import BackendUnreachable, ConsoleError, Unsupported
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import BackendHealth, HealthState, HostKey, Sandbox, SandboxRef
from sandbox_console.service import Console, LastSeen, LookupResult

_EACH = 3
"""Up to this many silent hosts get a line each."""

PATIENCE_S = 1.0
"""How long a list waits for all hosts before it prints those that have answered."""


async def find(context: Context, console: Console, name: str, *, changing: bool) -> Sandbox:
    """The sandbox that NAME means. Raises NotFound, Ambiguous, BackendUnreachable.

    A ``changing`` verb is refused if a host that does not answer may have the name, too; other verbs print a warning.
    """
    [found] = await find_all(context, console, [name], changing=changing)
    if isinstance(found, ConsoleError):
        raise found
    return found


async def within(context: Context, console: Console, sandbox: Sandbox, *needs: Capability) -> Sandbox:
    """The sandbox with the container of ``--container``. Raises Unsupported for what its backend lacks."""
    name = context.args.container
    able = await console.capabilities(sandbox.ref.backend, sandbox.ref.host)
    for capability in (*needs, *([Capability.CONTAINERS] if name else [])):
        if not able.has(capability):
            raise Unsupported(f"{sandbox.name}: {capability} is unsupported: {able.reason(capability)}")
    return structs.replace(sandbox, ref=structs.replace(sandbox.ref, container=name)) if name else sandbox


async def find_all(
    context: Context, console: Console, names: Sequence[str], *, changing: bool, creating: bool = False
) -> list[Sandbox | ConsoleError]:
    """What each NAME means, or why that is not known, so that one bad name does not stop the others.

    ``creating`` says that a name that is not found will be made.
    """
    everywhere = context.args.only_answering
    found = await console.find_all(names, changing=changing, only_answering=everywhere, creating=creating)
    for name, one in zip(names, found, strict=True):
        if isinstance(one, LookupResult):
            _warn_of_doubts(context, name, one)
    return [one.sandbox if isinstance(one, LookupResult) else one for one in found]


def _warn_of_doubts(context: Context, name: str, found: LookupResult) -> None:
    for health in found.doubts:
        _warn(context, health, f"{host_label(health)} does not answer and may hold {name!r} too: {health.reason}")


def warn_of_the_silent(context: Context, console: Console, healths: Sequence[BackendHealth]) -> None:
    """Name the silent backends on stderr. If ``--backend`` or ``--host`` named one, that is a failure of the verb.

    It also says what they had when they last answered, which is not listed as it may no longer be there.
    """
    absent = _absent(context, console, healths)
    if absent and context.streams.err.tty:
        names = ", ".join(map(host_label, absent))
        context.say(f"note: not available here: {names} (sandbox-console doctor says why)")
    silent = [health for health in healths if not health.ok and health not in absent]
    for health in silent:
        if _was_named(context, health):
            text = f"{host_label(health)}: {health.state}: {health.reason}{_held(console, [health])}"
            context.fail(BackendUnreachable(text, hint=health.hint))
    others = [health for health in silent if not _was_named(context, health)]
    if len(others) > _EACH and not context.json:
        _warn_of_many(context, console, others, len(healths))
        return
    for health in others:
        text = f"{host_label(health)}: {health.state}: {health.reason}{_held(console, [health])}"
        _warn(context, health, text, console.held(health))


def _was_named(context: Context, health: BackendHealth) -> bool:
    named = {health.host, f"{health.backend}/{health.host}"}
    return bool(context.backend[0]) or not named.isdisjoint(context.args.on_hosts)


def _warn_of_many(context: Context, console: Console, silent: Sequence[BackendHealth], total: int) -> None:
    """Name many silent hosts, those with the same reason on one line."""
    context.say(f"warning: {total - len(silent)} of {total} hosts answer")
    for reason in dict.fromkeys(health.reason for health in silent):
        same = [health for health in silent if health.reason == reason]
        context.say(f"warning: {', '.join(map(host_label, same))}: {reason}{_held(console, same)}")


def _held(console: Console, silent: Sequence[BackendHealth]) -> str:
    """What these hosts had when they last answered; empty if that is not known."""
    known = [one for health in silent if (one := console.held(health)) is not None and one.count]
    if not known:
        return ""
    since = min((one.silent_since for one in known if one.silent_since), default=None)
    dated = f", silent since {moment(since)}" if since else ""
    return f"; held {sum(one.count for one in known)} when last listed{dated}"


def say_waiting(context: Context, hosts: Sequence[HostKey]) -> None:
    """Say which hosts have not answered yet, if there are some."""
    if hosts:
        names = ", ".join(name if host == "local" else f"{name}/{host}" for name, host in hosts)
        context.say(f"waiting for {names} ...")


def _warn(context: Context, health: BackendHealth, text: str, held: LastSeen | None = None) -> None:
    error = BackendUnreachable(text, hint=health.hint)
    if context.json:
        line = error.as_dict() | {"warning": True, "backend": health.backend, "host": health.host}
        line |= {"held": held.count, "silent_since": held.silent_since or None} if held else {}
        context.streams.err.line(json_output.line(line))
    else:
        context.say(f"warning: {error.message}" + (f" (hint: {health.hint})" if health.hint else ""))


def _absent(context: Context, console: Console, healths: Sequence[BackendHealth]) -> Sequence[BackendHealth]:
    """Backends that need no full report each time, because they cannot work here and others do.

    A person at a terminal gets a short report; a log or a mail gets a full one the first time and then none.
    """
    if context.json or context.backend[0] or not any(health.ok for health in healths):
        return ()
    away = [health for health in healths if health.state is HealthState.UNAVAILABLE]
    return [health for health in away if context.streams.err.tty or not console.tell_once(health)]


def host_label(health: BackendHealth) -> str:
    """The name of a host: ``bubblewrap``, ``docker/far``."""
    return health.backend if health.host == "local" else f"{health.backend}/{health.host}"


async def find_named(context: Context, console: Console, words: Iterable[str], *, changing: bool) -> list[Sandbox]:
    """The sandboxes of some names, each once; a name that fails is reported and left out."""
    names = list(dict.fromkeys(words))
    found: dict[SandboxRef, Sandbox] = {}
    for name, one in zip(names, await find_all(context, console, names, changing=changing), strict=True):
        if isinstance(one, ConsoleError):
            context.fail(one, name if len(names) > 1 else "")
        else:
            found.setdefault(one.ref, one)
    return list(found.values())
