"""The rig of every check: an opened backend, permits from a real journal, and sandboxes that are removed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from msgspec import Struct
from msgspec.structs import replace

from sandbox_console.backends.base import Backend, Process, Secrets, Terminal
from sandbox_console.errors import ConsoleError, NotFound
from sandbox_console.model.action import Exec, OpenShell
from sandbox_console.model.capability import Capability
from sandbox_console.model.log import LogItem, LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.permits import MakePermit, permit_maker

T = TypeVar("T")
_WAIT_S, _GAP_S = 60.0, 5.0
_waits = [_WAIT_S]
_numbers = itertools.count()


def wait_s() -> float:
    """How many seconds the current check waits for what it expects; few where that is a known gap."""
    return _waits[-1]


class Profile(Struct, frozen=True):
    """A backend under test: its column's ``label`` and a factory of specs whose command sleeps.

    ``posix_sh`` says that the image has a POSIX ``sh`` and the usual programs. ``not_executable`` is a file in it.
    ``another`` opens a second backend on the same state, as the next console would. ``scratch`` is a folder inside that
    the sandbox's user can write. ``host_command`` runs a program in the network of the backend's host (``nsenter`` for
    an engine with its own network). ``disk`` are the folders of this machine in which the backend keeps its state.
    ``leftovers`` names everything that it made and has not removed: files, mounts, networks, cgroups, machines.
    ``own_kernel`` says that this machine's /proc does not show what runs inside. ``least_cpus`` is the smallest limit
    of CPUs that it can enforce. ``longest_s`` is a lifetime that ends soon, but not before the sandbox has started.
    ``slow`` is why checks that move 50 MB or more are skipped. ``lent`` is for backends where making a sandbox takes
    seconds and all checks use one state: an empty list that will hold a sleeping sandbox from check to check, which its
    owner removes at the end. ``runtime`` is the name of a runtime that the backend has. ``outside`` are two names that
    its gateways resolve to the host of ``host_command``, and the address of both. ``no_walls`` is why nothing keeps its
    guests in, if it says so itself. ``flood_s`` is how long a command is watched while nobody reads what it writes.
    """

    label: str
    spec: Callable[[str], SandboxSpec]
    posix_sh: bool = True
    not_executable: str = "/etc/passwd"
    another: Callable[[], Awaitable[Backend]] | None = None
    scratch: str = "/tmp"  # noqa: S108 - the guest's
    host_command: tuple[str, ...] = ()
    disk: tuple[Path, ...] = ()
    leftovers: Callable[[], set[str]] | None = None
    own_kernel: bool = False
    least_cpus: float = 0.2
    longest_s: float = 1.0
    slow: str = ""
    lent: list[SandboxRef] | None = None
    runtime: str = ""
    outside: tuple[str, str, str] | None = None
    no_walls: str = ""
    flood_s: float = 0.5


class Ran(Struct):
    """The end of a command, and its output."""

    code: int | None
    out: bytes
    err: bytes


class Rig:
    """Drives one backend for one check."""

    def __init__(self, backend: Backend, profile: Profile, permit: MakePermit, folder: Path) -> None:
        self.backend = backend
        self.folder = folder  # the audit log is in it
        self.profile = profile
        self.permit = permit
        self.made: list[SandboxRef] = []

    def needs(self, *wanted: Capability) -> None:
        """Skip, with the backend's reason, if it does not have these capabilities here."""
        capabilities = self.backend.capabilities()
        for one in wanted:
            if not capabilities.has(one):
                pytest.skip(f"{one}: {capabilities.reason(one)}")

    def needs_sh(self, *wanted: Capability) -> None:
        """Like ``needs``, but also require an image with a POSIX shell."""
        self.needs(*wanted)
        if not self.profile.posix_sh:
            pytest.skip("its image has no POSIX shell")

    @staticmethod
    async def refusal(call: Awaitable[Any], change: str) -> ConsoleError:
        """The error that a call raises. Fails, naming ``what`` was accepted, if it raises none."""
        try:
            await call
        except ConsoleError as error:
            return error
        raise AssertionError(f"it took {change}, and should have refused it")

    def needs_speed(self) -> None:
        """Skip a check that moves so much data that it takes minutes here."""
        if self.profile.slow:
            pytest.skip(self.profile.slow)

    def needs_walls(self) -> None:
        """Skip, with the backend's own reason, if nothing keeps a guest in and no capability says so."""
        if self.profile.no_walls:
            pytest.skip(self.profile.no_walls)

    def spec(self, **fields: Any) -> SandboxSpec:
        return replace(self.profile.spec(f"conf-{os.getpid()}-{next(_numbers)}"), **fields)

    async def make(self, *command: str, start: bool = True, secrets: Secrets = (), **fields: Any) -> SandboxRef:
        """Make and start a sandbox that is removed at the end of the check."""
        if command:
            fields["command"] = command
        spec = self.spec(secrets=tuple(secret.name for secret in secrets), **fields)
        ref = await self.backend.create(await self.permit("create"), spec, secrets, lambda _: None)
        self.made.append(ref)
        if start:
            await self.backend.start(await self.permit("start"), ref, secrets)
        return ref

    async def idle(self) -> SandboxRef:
        """A sleeping sandbox, for a check that changes nothing in it except files."""
        lent = self.profile.lent
        if lent is None:
            return await self.make()
        if not (lent and await self._runs(lent[0])):
            lent[:] = [await self.make()]
            self.made.remove(lent[0])
        return lent[0]

    async def _runs(self, ref: SandboxRef) -> bool:
        try:
            return (await self.look(ref)).status is Status.RUNNING
        except NotFound:
            return False

    async def script(self, text: str, **fields: Any) -> SandboxRef:
        return await self.make("sh", "-c", text, **fields)

    async def look(self, ref: SandboxRef) -> Sandbox:
        return await self.backend.inspect(ref)

    async def stop(self, ref: SandboxRef, grace_s: float = 5.0) -> None:
        await self.backend.stop(await self.permit("stop"), ref, grace_s)

    async def start(self, ref: SandboxRef, secrets: Secrets = ()) -> None:
        await self.backend.start(await self.permit("start"), ref, secrets)

    async def remove(self, ref: SandboxRef, *, force: bool = True) -> None:
        await self.backend.remove(await self.permit("remove"), ref, force)

    def ability(self, kind: type[T], capability: Capability) -> T:
        """The backend as one with an ability. Skips if it does not have it, and fails if it only claims to have it."""
        self.needs(capability)
        assert isinstance(self.backend, kind), f"it has {capability}, and not the methods of {kind.__name__}"
        return self.backend

    async def exec(self, ref: SandboxRef, *argv: str, secrets: Secrets = (), **fields: Any) -> Process:
        return await self.backend.exec(await self.permit("exec"), Exec(ref, argv, **fields), secrets)

    async def run(self, ref: SandboxRef, *argv: str, stdin: bytes = b"", secrets: Secrets = (), **fields: Any) -> Ran:
        """Run a command to its end."""
        process = await self.exec(ref, *argv, secrets=secrets, **fields)
        found = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray(), Stream.TTY: bytearray()}
        async with asyncio.timeout(wait_s()):
            feeding = asyncio.create_task(_feed(process, stdin))
            async for stream, data in process.output():
                found[stream] += data
            await feeding
            end = await process.wait()
        return Ran(end.code, bytes(found[Stream.STDOUT]), bytes(found[Stream.STDERR]))

    async def sh(self, ref: SandboxRef, text: str, **fields: Any) -> Ran:
        return await self.run(ref, "sh", "-c", text, **fields)

    async def shell(self, ref: SandboxRef, **fields: Any) -> Terminal:
        return await self.backend.shell(await self.permit("shell"), OpenShell(ref, **fields), ())

    async def logs(self, ref: SandboxRef, **query: Any) -> list[LogItem]:
        async with asyncio.timeout(wait_s()):
            return [item async for batch in self.backend.logs(ref, LogQuery(**query)) for item in batch]

    async def text(self, ref: SandboxRef, **query: Any) -> bytes:
        return b"".join(item.data for item in await self.logs(ref, **query) if isinstance(item, LogRecord))

    async def processes(self, ref: SandboxRef) -> str:
        """The command lines of the sandbox's processes, seen from inside."""
        script = "for f in /proc/[0-9]*/cmdline; do tr '\\0' ' ' <$f; echo; done 2>/dev/null"
        return (await self.sh(ref, script)).out.decode()

    async def ended(self, ref: SandboxRef) -> Sandbox:
        """The sandbox, once its main process has ended."""
        return await self.until(ref, Status.EXITED)

    async def until(self, ref: SandboxRef, status: Status, more_s: float = 0.0) -> Sandbox:
        deadline = time.monotonic() + wait_s() + more_s
        while (found := await self.look(ref)).status is not status:
            assert time.monotonic() < deadline, f"it is {found.status}, not {status}: {found.detail}"
            await asyncio.sleep(0.02)
        return found

    async def clean_up(self) -> None:
        for ref in self.made:
            with contextlib.suppress(NotFound):
                await self.remove(ref)


async def _feed(process: Process, stdin: bytes) -> None:
    if stdin:
        await process.write(stdin)
    await process.close_stdin()


def resident_mib() -> int:
    """The current memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0


async def eventually(look: Callable[[], Awaitable[bool]], expected: str) -> None:
    """Poll until ``look`` returns true."""
    deadline = time.monotonic() + wait_s()
    while not await look():
        assert time.monotonic() < deadline, expected
        await asyncio.sleep(0.05)


class Checks:
    """The fixtures of every topic. A subclass of the suite overrides ``backend`` and ``profile``."""

    known_gaps: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture
    def backend(self) -> Backend:
        raise NotImplementedError("override it with a fixture that yields an opened backend")

    @pytest.fixture
    def profile(self) -> Profile:
        raise NotImplementedError("override it with a fixture that gives a Profile")

    @pytest.fixture
    async def rig(self, backend: Backend, profile: Profile, tmp_path: Path) -> AsyncIterator[Rig]:
        async with permit_maker(tmp_path) as permit:
            rig = Rig(backend, profile, permit, tmp_path)
            yield rig
            await rig.clean_up()

    @pytest.fixture(autouse=True)
    def _column(self, request: pytest.FixtureRequest, profile: Profile) -> Iterator[None]:
        check = request.node.originalname
        topic = request.node.function.__module__.rpartition(".")[2]
        request.node.user_properties.append(("conformance", [profile.label, topic, request.node.name]))
        if (gap := self.known_gaps.get(request.node.name, self.known_gaps.get(check))) is not None:
            request.applymarker(pytest.mark.xfail(strict=True, reason=gap))
        _waits.append(_WAIT_S if gap is None else _GAP_S)
        yield
        _waits.pop()
