"""The state of a fake backend, shared by its parts: sandboxes, roots, images, snapshots, watchers."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct, field, structs

from sandbox_console.backends.common.messages import name_taken
from sandbox_console.errors import BackendUnreachable, Conflict, NotFound
from sandbox_console.model.action import Permit
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.egress import EgressRecord, EgressRule
from sandbox_console.model.event import BackendEvent, Changed, HealthChanged, Listed
from sandbox_console.model.guest import GuestEvent, GuestProcess
from sandbox_console.model.image import Image, Snapshot
from sandbox_console.model.log import LogItem
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef, Stats, Status
from sandbox_console.testing.fake_attach import FakeAttached
from sandbox_console.testing.fake_commands import FakeProcess
from sandbox_console.testing.fake_files import Tree, base_tree
from sandbox_console.testing.fake_terminal import FakeTerminal

EVERYTHING = Capabilities(frozenset(Capability))


class Within(Struct):
    """The contents of fake sandboxes, by sandbox id, and of their backend.

    ``files`` are added to the image's. ``processes`` are reported instead of what really runs. ``guest_events`` and
    ``egress`` are earlier events and records. ``images`` and ``snapshots`` exist from the start.
    """

    files: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    processes: Mapping[str, Sequence[GuestProcess]] = field(default_factory=dict)
    guest_events: Mapping[str, Sequence[GuestEvent]] = field(default_factory=dict)
    egress: Mapping[str, Sequence[EgressRecord]] = field(default_factory=dict)
    images: Sequence[Image] = ()
    snapshots: Sequence[Snapshot] = ()


class FakeImageStore(Struct):
    """A snapshot and its contents. One that exists from the start has nothing to restore."""

    snapshot: Snapshot
    sandbox: Sandbox | None = None
    tree: Tree | None = None


class FakeCore:
    """Plain dictionaries, and the watchers that are notified when they change."""

    def __init__(
        self,
        sandboxes: Iterable[Sandbox] = (),
        *,
        name: str = "fake",
        host: str = "local",
        logs: Mapping[str, Sequence[LogItem]] | None = None,
        stats: Mapping[str, Sequence[Stats]] | None = None,
        capabilities: Capabilities = EVERYTHING,
        faults: Mapping[str, Fault] | None = None,
        dead: bool = False,
        reason: str = "",
        images: Sequence[str] = (),
        within: Within | None = None,
        clock: Callable[[], float] | None = None,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.host = host
        self.faults = Faults(faults, dead=dead, reason=reason)
        self.sandboxes = {sandbox.ref.id: sandbox for sandbox in sandboxes}
        self.permits: list[Permit] = []
        self._logs = {id_: list(items) for id_, items in (logs or {}).items()}
        self._stats = {id_: list(samples) for id_, samples in (stats or {}).items()}
        self._capabilities = capabilities
        self._only = tuple(images)
        self._clock = clock or Clock()
        self._ids = Ids(seed)
        self._watchers: set[asyncio.Queue[BackendEvent]] = set()
        self._news = asyncio.Condition()
        self._secrets: dict[str, dict[str, str]] = {}
        self._running: dict[FakeProcess, str] = {}
        self._terminals: set[FakeTerminal] = set()
        self._attached: dict[FakeAttached, str] = {}
        self._furnish(within or Within())

    def _furnish(self, within: Within) -> None:
        self._images = {image.id: image for image in within.images}
        self._image_trees: dict[str, Tree] = {}
        for name in (*self._only, *(one.image for one in self.sandboxes.values() if one.image)):
            self._have(name)
        self._trees: dict[str, Tree] = {}
        for id_, files in within.files.items():
            for path, data in files.items():
                self._tree(id_).write(path, data, self._clock())
        self._processes = dict(within.processes)
        self._happened = {id_: list(found) for id_, found in within.guest_events.items()}
        self._egress = {id_: list(found) for id_, found in within.egress.items()}
        self._rules: dict[str, tuple[EgressRule, ...]] = {}
        self._snapshots = {one.name: FakeImageStore(one) for one in within.snapshots}

    # By hand, in a test

    async def tell(self, event: BackendEvent) -> None:
        """Pass an event to all watchers, and wake all followers of logs."""
        for queue in self._watchers:
            queue.put_nowait(event)
        await self._wake()

    async def say(self, ref: SandboxRef, *items: LogItem) -> None:
        """Make the sandbox's main process write."""
        self._logs.setdefault(ref.id, []).extend(items)
        for attached, id_ in self._attached.items():
            if id_ == ref.id:
                attached.hear(items)
        await self._wake()

    async def happen(self, ref: SandboxRef, kind: str, detail: str = "", **attributes: str) -> None:
        """Make something happen to a sandbox, which ``guest_events`` then reports."""
        self._happened.setdefault(ref.id, []).append(GuestEvent(self._clock(), kind, detail, attributes))
        await self._wake()

    async def record(self, ref: SandboxRef, *records: EgressRecord) -> None:
        """Make a gateway decide, which ``egress_records`` then reports."""
        self._egress.setdefault(ref.id, []).extend(records)
        await self._wake()

    async def die(self, reason: str) -> None:
        """Stop answering, and notify watchers."""
        self.faults.dead, self.faults.reason = True, reason
        await self.tell(HealthChanged(await self.health()))

    async def revive(self) -> None:
        """Answer again, and send watchers the whole list."""
        self.faults.dead = False
        await self.tell(HealthChanged(await self.health()))
        await self.tell(self._listed())

    async def health(self) -> BackendHealth:
        if self.faults.dead:
            return BackendHealth(self.name, self.host, HealthState.UNREACHABLE, self.faults.reason, "revive it")
        return BackendHealth(self.name, self.host, HealthState.OK, version="fake 1")

    # For the parts

    async def _meet(self, permit: Permit, verb: str) -> None:
        self.permits.append(permit)
        await self.faults.meet(verb)

    async def _look(self, verb: str, ref: SandboxRef) -> Sandbox:
        await self.faults.meet(verb)
        return self._get(ref)

    async def _wake(self) -> None:
        async with self._news:
            self._news.notify_all()

    def _listed(self) -> Listed:
        return Listed(self.name, self.host, tuple(self.sandboxes.values()))

    def _get(self, ref: SandboxRef) -> Sandbox:
        sandbox = self.sandboxes.get(ref.id)
        if sandbox is None or (ref.backend, ref.host) != (self.name, self.host):
            raise NotFound(f"no sandbox {ref}", hint="sandbox-console ls --all")
        return sandbox

    def _live(self, ref: SandboxRef) -> bool:
        return ref.id in self.sandboxes and self.sandboxes[ref.id].status.live

    def _free(self, name: str) -> None:
        if any(sandbox.name == name for sandbox in self.sandboxes.values()):
            raise name_taken(name)

    def _require(self, ref: SandboxRef, status: Status) -> Sandbox:
        sandbox = self._get(ref)
        if sandbox.status is not status:
            raise Conflict(f"{sandbox.name} is {sandbox.status}, not {status}", hint=f"start {sandbox.name}")
        return sandbox

    def _tree(self, id_: str) -> Tree:
        """A sandbox's root, made from its image when first needed."""
        if id_ not in self._trees:
            self._trees[id_] = self._base(id_).copy()
        return self._trees[id_]

    def _base(self, id_: str) -> Tree:
        sandbox = self.sandboxes.get(id_)
        image = image_id(sandbox.image) if sandbox else ""
        return self._image_trees.setdefault(image, base_tree((sandbox and sandbox.created_at) or self._clock()))

    def _have(self, name: str, tree: Tree | None = None) -> Image:
        """An image of that name, the existing one or a new one."""
        image = next((one for one in self._images.values() if name in one.names), None)
        if image is None or tree is not None:
            tree = tree or base_tree(self._clock())
            image = Image(self.name, self.host, image_id(name), (name,), image_id(name), tree.size, self._clock())
            self._images[image.id], self._image_trees[image.id] = image, tree
        return image

    async def _change(self, ref: SandboxRef, **fields: object) -> None:
        await self._put(structs.replace(self._get(ref), **fields))

    async def _put(self, sandbox: Sandbox) -> None:
        self.sandboxes[sandbox.ref.id] = sandbox
        if not sandbox.status.live:
            for attached, id_ in self._attached.items():
                if id_ == sandbox.ref.id:
                    attached.end(sandbox.exit)
        await self.tell(Changed(sandbox))


def image_id(name: str) -> str:
    """An image's id, which is equal for equal names in every run."""
    return "sha256:" + hashlib.sha256(name.encode()).hexdigest()


class Clock:
    """Seconds since the epoch that stand still until they are moved."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self.at += seconds


class Ids:
    """Twelve hexadecimal digits at a time, from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def __call__(self) -> str:
        return f"{self._random.getrandbits(48):012x}"


Fault = BaseException | float
"""The fault of a verb: an exception that it raises, or seconds that it takes."""


class Faults:
    """``verbs`` maps a method's name (``create``, ``list``) to its fault; both fields may be changed while in use."""

    def __init__(self, verbs: Mapping[str, Fault] | None = None, *, dead: bool = False, reason: str = "") -> None:
        self.verbs = dict(verbs or {})
        self.dead = dead
        self.reason = reason or "the fake backend is dead"

    async def meet(self, verb: str) -> None:
        """Apply the verb's fault. Raises it, or BackendUnreachable if the backend is dead."""
        if self.dead:
            raise BackendUnreachable(f"the backend does not answer: {self.reason}", hint="revive it")
        fault = self.verbs.get(verb)
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            await asyncio.sleep(fault)
