"""Asks hosts for their lists, and waits no longer than what is known of the silent ones requires."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox
from sandbox_console.model.spec import MADE_BY
from sandbox_console.service.reads.known_names import Key, KnownNames

T = TypeVar("T")

GRACE_S = 0.3
"""How long to wait for hosts that are not known to have what is looked for. It is longer than a list takes."""

AWAKE_S = 0.2
"""How long to wait for a host that did not answer last time before the others are shown without it."""

Answer = tuple[Sequence[Sandbox], BackendHealth]
Patience = Callable[[Mapping[Key, Answer], Sequence[Key]], float | None]
"""How long to wait, in seconds, for the hosts that have not answered yet; None for as long as they may take."""


class Hosts(Protocol):
    """What is needed of the fleet; service/reads/fleet.py describes each part."""

    names: KnownNames

    async def ask(self, name: str, host: str, *, brief: bool = False) -> Answer: ...


async def ask_all(hosts: Hosts, keys: Sequence[Key], patience: Patience) -> dict[Key, Answer]:
    """The brief lists of the hosts that were waited for. ``patience`` is called again after each answer."""
    answers: dict[Key, Answer] = {}
    requests = {key: asyncio.ensure_future(hosts.ask(*key, brief=True)) for key in keys}
    until: float | None = None
    try:
        while waiting := [key for key in keys if key not in answers]:
            if until is None and (seconds := patience(answers, waiting)) is not None:
                until = time.monotonic() + seconds
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                break
            some = [requests[key] for key in waiting]
            await asyncio.wait(some, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            answers |= {key: requests[key].result() for key in waiting if requests[key].done()}
    finally:
        for task in requests.values():
            task.cancel()
        await asyncio.gather(*requests.values(), return_exceptions=True)
    return answers


async def in_parts(
    names: KnownNames, requests: Mapping[Key, asyncio.Task[T]], patience_s: float
) -> AsyncGenerator[tuple[list[T], list[Key]], None]:
    """What hosts answer, in parts: those that answer within ``patience_s`` seconds, then the others as they arrive.

    Each part names the hosts that have not answered yet. The tasks never raise; those left at the end are cancelled.
    """
    answered: set[Key] = set()
    try:
        likely = [task for key, task in requests.items() if not names.of(key).silent]
        await asyncio.wait(likely or requests.values(), timeout=patience_s)
        await asyncio.wait(requests.values(), timeout=min(patience_s, AWAKE_S))
        while len(answered) < len(requests):
            new = [key for key, task in requests.items() if key not in answered and task.done()]
            answered.update(new)
            yield [requests[key].result() for key in new], [key for key in requests if key not in answered]
            waiting = [task for key, task in requests.items() if key not in answered]
            if waiting:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in requests.values():
            task.cancel()
        await asyncio.gather(*requests.values(), return_exceptions=True)


async def made_by(
    hosts: Hosts, keys: Sequence[Key], file: str, *, only_answering: bool = False
) -> tuple[list[Sandbox], list[BackendHealth]]:
    """The sandboxes that ``up`` made of a file, and the hosts that do not answer and may have some of them."""

    def patience(_: Mapping[Key, Answer], waiting: Sequence[Key]) -> float | None:
        known = [hosts.names.of(key) for key in waiting]
        known = [one for one in known if not (only_answering and one.silent)]
        return GRACE_S if all(one.excludes_file(file) for one in known) else None

    answers = await ask_all(hosts, keys, patience)
    found = [one for sandboxes, _ in answers.values() for one in sandboxes]
    doubts = [] if only_answering else [
        health for key, (_, health) in answers.items() if not health.ok and _may_have(hosts.names, key, health, file)
    ]  # fmt: skip
    return [one for one in found if one.managed and one.labels.get(MADE_BY) == file], doubts


def _may_have(names: KnownNames, key: Key, health: BackendHealth, file: str) -> bool:
    known = names.of(key)
    if known.answered_at or known.made_by(file):
        return not known.excludes_file(file)
    return health.silent and health.state is not HealthState.UNAVAILABLE
