"""Finds the sandboxes that NAMEs mean: one list per host for all of them, and no guess about silent hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from sandbox_console.errors import Ambiguous, BackendUnreachable, ConsoleError, NotFound, UsageError
from sandbox_console.model.access import access
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef
from sandbox_console.service.reads.host_patience import GRACE_S, Answer, Hosts, ask_all
from sandbox_console.service.reads.known_names import ID_PREFIX, Key

_AT_ONCE = 32


class LookupResult(Struct, frozen=True):
    """What a NAME means. ``doubts`` are the hosts that do not answer and may have it too."""

    sandbox: Sandbox
    doubts: tuple[BackendHealth, ...] = ()


class Fleet(Hosts, Protocol):
    """What a lookup needs of the fleet; service/reads/fleet.py describes each part."""

    @property
    def keys(self) -> list[Key]: ...

    def described(self) -> str: ...

    async def inspect(self, ref: SandboxRef) -> Sandbox: ...

    async def recall(self, key: Key, name: str) -> bool: ...


class Lookup:
    """Looks up one command's names. A host that does not answer counts as empty unless it may have the name.

    It may have the name if it had it when it last answered, if the name was requested there since, or if it never
    returned a list and now hangs. ``recall`` is used for a host that is away and whose list is not stored.
    """

    def __init__(self, fleet: Fleet, words: Sequence[str]) -> None:
        self._fleet = fleet
        self._words = words
        self._only_answering = self._creating = False
        self._answers: dict[Key, Answer] = {}
        self._recalled: dict[tuple[Key, str], bool] = {}

    async def run(
        self, *, changing: bool, only_answering: bool, creating: bool = False
    ) -> list[LookupResult | ConsoleError]:
        """What each word means, or why that is not known, in the order of the words.

        ``creating`` says that a name that is not found will be made.
        """
        self._only_answering, self._creating = only_answering, creating
        await self._ask([word for word in self._words if not _full(word)])
        if not only_answering:
            await self._recall()
        limit = asyncio.Semaphore(_AT_ONCE)

        async def one(word: str) -> LookupResult | ConsoleError:
            try:
                if _full(word):
                    async with limit:
                        return LookupResult(await self._fleet.inspect(SandboxRef(*word.split("/", 2))))
                return self._meant(word, changing=changing, only_answering=only_answering)
            except ConsoleError as error:
                return error

        return await asyncio.gather(*(one(word) for word in self._words))

    # Asking

    async def _ask(self, words: Sequence[str]) -> None:
        keys = list(dict.fromkeys(key for word in words for key in self._scope(word)))

        def patience(answers: Mapping[Key, Answer], waiting: Sequence[Key]) -> float | None:
            self._answers = dict(answers)
            return self._patience(words, waiting)

        self._answers = await ask_all(self._fleet, keys, patience)

    def _patience(self, words: Sequence[str], waiting: Sequence[Key]) -> float | None:
        """How long to wait for these hosts: as long as they may take, unless they are known to have no such name.

        A name that no host has yet is looked for at those that answered last time, because another tool may have made
        it there since; a name that is to be made is not.
        """
        away, missing = {key: self._fleet.names.of(key) for key in waiting}, False
        for word in words:
            scope, name = self._scope(word), _name(word)
            known = [away[key] for key in scope if key in away and not (self._only_answering and away[key].silent)]
            lacking = not self._fits(scope, name)
            if any(not one.excludes(name) or (lacking and not (self._creating or one.silent)) for one in known):
                return None
            missing = missing or lacking
        sure = not missing and not self._only_answering and all(one.silent for one in away.values())
        return 0.0 if sure else GRACE_S

    async def _recall(self) -> None:
        for key, (_, health) in self._answers.items():
            if health.ok or health.silent or self._fleet.names.of(key).answered_at:
                continue
            for word in self._words:
                if not _full(word) and key in self._scope(word):
                    self._recalled[key, _name(word)] = await self._fleet.recall(key, _name(word))

    # Deciding

    def _meant(self, word: str, *, changing: bool, only_answering: bool) -> LookupResult:
        scope, name = self._scope(word), _name(word)
        if not scope:
            raise UsageError(
                f"no backend is called {word.partition(':')[0]!r}", hint=f"there is: {self._fleet.described()}"
            )
        fits = self._fits(scope, name)
        doubts = () if only_answering else tuple(self._doubts(scope, name))
        if len(fits) > 1:
            candidates = sorted(str(fit.ref) for fit in fits)
            hint = "name one as backend/host/id: " + ", ".join(candidates)
            raise Ambiguous(f"{word!r} fits {len(fits)} sandboxes", candidates, hint=hint)
        if fits and doubts and changing:
            hint = f"name it in full, {fits[0].ref}, or give --only-answering"
            raise BackendUnreachable(f"{self._doubt(doubts[0], name)} too", hint=hint)
        if fits:
            return LookupResult(fits[0], doubts)
        raise self._missing(word, scope, doubts)

    def _missing(self, word: str, scope: Sequence[Key], doubts: Sequence[BackendHealth]) -> ConsoleError:
        dead = [health for key in scope if not (health := self._health(key)).ok]
        if ":" in word and dead and not doubts:
            return BackendUnreachable(f"{host_label(dead[0])} does not answer: {dead[0].reason}", hint=dead[0].hint)
        if doubts:
            text = f"{self._doubt(doubts[0], _name(word))}: {doubts[0].reason}"
            return BackendUnreachable(text, hint=doubts[0].hint or "--only-answering leaves it out")
        silent = (
            "; not asked: "
            + ", ".join(f"{host_label(backend_health)} ({backend_health.reason})" for backend_health in dead)
            if dead
            else ""
        )
        return NotFound(f"no sandbox is called {word!r}{silent}", hint="sandbox-console ls --all")

    def _health(self, key: Key) -> BackendHealth:
        answer = self._answers.get(key)
        return answer[1] if answer else BackendHealth(*key, HealthState.UNREACHABLE, "it did not answer last time")

    def _doubts(self, scope: Sequence[Key], name: str) -> list[BackendHealth]:
        if access().labels:  # what a silent host had may be somebody else's
            return []
        silent = [(key, self._answers[key][1]) for key in scope if key in self._answers]
        return [health for key, health in silent if not health.ok and self._may_hold(key, health, name)]

    def _may_hold(self, key: Key, health: BackendHealth, name: str) -> bool:
        known = self._fleet.names.of(key)
        if known.answered_at or known.holds(name):
            return known.holds(name)
        if health.state is HealthState.UNAVAILABLE:
            return False
        return health.silent or self._recalled.get((key, name), False)

    def _doubt(self, health: BackendHealth, name: str) -> str:
        was_held = self._fleet.names.of((health.backend, health.host)).holds(name)
        return f"{host_label(health)} does not answer and {'held' if was_held else 'may hold'} {name!r}"

    def _fits(self, scope: Sequence[Key], name: str) -> list[Sandbox]:
        there = [sandbox for key in scope if key in self._answers for sandbox in self._answers[key][0]]
        return [sandbox for sandbox in there if sandbox.name == name] or [
            sandbox for sandbox in there if len(name) >= ID_PREFIX and sandbox.ref.id.startswith(name)
        ]

    def _scope(self, word: str) -> list[Key]:
        backend, colon, _ = word.partition(":")
        return [key for key in self._fleet.keys if not colon or key[0] == backend]


def host_label(health: BackendHealth) -> str:
    """The name of a host: ``bubblewrap``, ``docker/far``."""
    return health.backend if health.host == "local" else f"{health.backend}/{health.host}"


def _full(word: str) -> bool:
    return word.count("/") >= 2


def _name(word: str) -> str:
    _, colon, rest = word.partition(":")
    return rest if colon else word
