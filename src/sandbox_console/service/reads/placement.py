"""Places a new sandbox on the host that has the fewest running ones. There is no scheduler beyond that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing

from sandbox_console.errors import BackendUnreachable, NoRoom, UsageError
from sandbox_console.model.access import full, limited_to
from sandbox_console.model.sandbox import BackendHealth, HostKey
from sandbox_console.service.host_options import HostOptions
from sandbox_console.service.reads.host_patience import Hosts, in_parts

PATIENCE_S = 1.0
"""How long to wait for the lists of all hosts before one of those that have answered is used, in seconds."""

_NAMED = 3


def emptiest(running: Mapping[HostKey, int], options: Callable[[HostKey], HostOptions]) -> HostKey:
    """The host with the fewest running sandboxes that has room, of equal ones the first. Raises NoRoom."""
    limits = {key: options(key).max_running for key in running}
    room = [key for key, count in running.items() if (most := limits[key]) is None or count < most]
    if not room:
        some = ", ".join(f"{'/'.join(key)} ({running[key]} of {limits[key]})" for key in list(running)[:_NAMED])
        more = f" and {len(running) - _NAMED} more" if len(running) > _NAMED else ""
        raise NoRoom(f"no host has room: {some}{more}", hint="raise max_running in [hosts], or name a host")
    return min(room, key=lambda key: running[key])


async def fewest_running(hosts: Hosts, keys: Sequence[HostKey], options: Callable[[HostKey], HostOptions]) -> HostKey:
    """Where to make a sandbox: one of ``keys`` that answers soon. What others run there counts, too.

    Raises NoRoom, and BackendUnreachable if none answers.
    """
    running: dict[HostKey, int] = {}
    silent: list[BackendHealth] = []
    with limited_to(full):  # whoever asks may see only some of what runs there
        requests = {key: asyncio.create_task(hosts.ask(*key, brief=True)) for key in keys}
    async with aclosing(in_parts(hosts.names, requests, PATIENCE_S)) as parts:
        async for answers, waiting in parts:
            silent += [health for _, health in answers if not health.ok]
            for rows, health in answers:
                if health.ok:
                    running[health.backend, health.host] = sum(row.status.live for row in rows)
            if running or not waiting:
                break
    if not running:
        first = silent[0]
        raise BackendUnreachable(
            f"none of {len(keys)} hosts answers; {first.backend}/{first.host}: {first.reason}", hint=first.hint
        )
    return emptiest({key: running[key] for key in keys if key in running}, options)


def one_backend(keys: Sequence[HostKey], default: str) -> list[HostKey]:
    """Those of the default backend, else all, if they are of one backend. Raises UsageError if they are of several."""
    mine = [key for key in keys if key[0] == default] or list(keys)
    names = list(dict.fromkeys(name for name, _ in mine))
    if len(names) > 1:
        raise UsageError(f"the hosts are of several backends: {', '.join(names)}", hint=f"--backend {names[0]}")
    return mine
