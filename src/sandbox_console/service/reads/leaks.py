"""Scans for secrets where none should be: logs, specs, environments of sandboxes, files, recordings."""

from __future__ import annotations

import asyncio
import json
import os
import secrets as random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from sandbox_console.errors import ConsoleError, SecretError
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.hostfs.own_files import read_own
from sandbox_console.hostfs.search import files_below
from sandbox_console.model.action import Exec
from sandbox_console.model.log import LogQuery, LogRecord, Stream
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.secrets import leaks
from sandbox_console.secrets.leaks import Hit, Scanner
from sandbox_console.service.gate.operation import ExecIO
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.fleet import Fleet

_CHUNK = 1 << 20
_KEY_BYTES = 32
_ENVIRONMENT_MOST = 8 << 20
_LOOK_S = 30.0
_BEGIN = b"\0==sandbox-console=="
# NUL separates the variables; a process that ends meanwhile is skipped.
_SCRIPT = r"""for p in /proc/[0-9]*; do [ "$p" = "/proc/$$" ] || { printf '\0==sandbox-console==%s\0' "${p#/proc/}"
cat "$p/environ"; }; done 2>/dev/null"""


class Leak(Struct, frozen=True):
    """A hit: ``count`` times at ``place``, first at ``line`` (0 if there are no lines).

    ``secret`` is a name in the config, empty if it only looks like ``what``; otherwise ``what`` is its form.
    """

    place: str
    secret: str
    what: str
    fingerprint: str
    count: int = 1
    line: int = 0


class NotLooked(Struct, frozen=True):
    """A place that could not be searched, or a secret that could not be searched for."""

    place: str
    reason: str


AskGround = Callable[[], Awaitable[GuestFolders]]
"""A function that returns what guests can change."""

Look = Callable[[Exec, ExecIO], Awaitable[object]]
"""Carries out an exec through the gate with its output unmasked, because the scan must see what it searches for."""


class LeakScan:
    """One scan."""

    def __init__(self, fleet: Fleet, vault: Vault, state: Path, look: Look, guest_folders: AskGround) -> None:
        self._ground = guest_folders
        self._fleet = fleet
        self._vault = vault
        self._state = state
        self._look = look

    async def run(self, paths: Sequence[Path] = ()) -> AsyncIterator[Leak | NotLooked]:
        """Search everywhere, and in ``paths`` too. Values are kept until it ends."""
        known: list[ResolvedSecret] = []
        for name in self._vault.names:
            try:
                known += await self._vault.resolve([name])
            except SecretError as error:
                yield NotLooked(f"secret {name}", error.message)
        scanner = Scanner(known, await asyncio.to_thread(fingerprint_key, self._state))
        sandboxes, healths = await self._fleet.listing()
        for health in healths:
            if not health.ok:
                yield NotLooked(f"backend {health.backend} ({health.host})", health.reason)
        for sandbox in sandboxes:
            async for found in self._sandbox(scanner, sandbox):
                yield self._masked(found)
        guest_folders = await self._ground()
        for root in (self._state, *paths):
            async for found in _files(scanner, root, self._state / "backends", guest_folders):
                yield self._masked(found)

    def _masked(self, found: Leak | NotLooked) -> Leak | NotLooked:
        """A result with the name of its file or variable masked, because the name may contain a value itself."""
        mask = self._vault.redactor.text
        if isinstance(found, NotLooked):
            return NotLooked(mask(found.place), mask(found.reason))
        return replace(found, place=mask(found.place))

    async def _sandbox(self, scanner: Scanner, sandbox: Sandbox) -> AsyncIterator[Leak | NotLooked]:
        shown = json.dumps([dict(sandbox.labels), sandbox.spec.to_dict() if sandbox.spec else {}], ensure_ascii=False)
        for leak in _summed(f"spec of {sandbox.name}", scanner.scan([shown.encode("utf-8", "surrogatepass")])):
            yield replace(leak, line=0)
        try:
            for leak in _summed(f"log of {sandbox.name}", await self._logs(scanner, sandbox)):
                yield leak
        except ConsoleError as error:
            yield NotLooked(f"log of {sandbox.name}", error.message)
        if sandbox.status is Status.RUNNING and sandbox.managed:
            async for found in self._environment(scanner, sandbox):
                yield found

    async def _logs(self, scanner: Scanner, sandbox: Sandbox) -> list[Hit]:
        backend = await self._fleet.use(sandbox.ref.backend, sandbox.ref.host)
        streams: dict[Stream, leaks.Stream] = {}
        hits: list[Hit] = []
        async for batch in backend.logs(sandbox.ref, LogQuery()):
            for kind in Stream:
                items = [item.data for item in batch if isinstance(item, LogRecord) and item.stream is kind]
                if items:
                    stream = streams.setdefault(kind, leaks.Stream(scanner))
                    hits += await asyncio.to_thread(stream.feed, b"".join(items))
        for stream in streams.values():
            hits += await asyncio.to_thread(stream.feed, b"", last=True)
        return hits

    async def _environment(self, scanner: Scanner, sandbox: Sandbox) -> AsyncIterator[Leak | NotLooked]:
        got = bytearray()

        async def keep(stream: Stream, data: bytes) -> None:
            if stream is Stream.STDOUT and len(got) < _ENVIRONMENT_MOST:
                got.extend(data)

        look = Exec(sandbox.ref, ("sh", "-c", _SCRIPT), timeout_s=_LOOK_S)
        try:
            await self._look(look, ExecIO(on_output=keep))
        except ConsoleError as error:
            yield NotLooked(f"environment of {sandbox.name}", error.message)
            return
        if _BEGIN not in got:
            yield NotLooked(f"environment of {sandbox.name}", "it has no sh, cat or /proc to search with")
            return
        injects = self._vault.injects(self._fleet.capabilities(sandbox.ref.backend, sandbox.ref.host))
        own = {name for name in (sandbox.spec.secrets if sandbox.spec else ()) if injects.get(name) == "env"}
        for leak in await asyncio.to_thread(_in_environments, scanner, bytes(got), sandbox.name, own):
            yield leak


def fingerprint_key(state: Path) -> bytes:
    """The key of this installation, made when first needed. Raises SecretError if it cannot be stored."""
    path = state / "fingerprint.key"
    try:
        with suppress(FileExistsError):
            fresh = path.with_name(f"{path.name}.{random.token_hex(4)}")
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(random.token_bytes(_KEY_BYTES))
            try:
                os.link(fresh, path)  # the first of two consoles wins, and no reader sees half of it
            finally:
                fresh.unlink()
        key = read_own(path, _KEY_BYTES)
    except OSError as error:
        raise SecretError(f"the key for fingerprints cannot be kept in {path}: {error.strerror}") from None
    if len(key) != _KEY_BYTES:
        hint = "move it away; the next scan makes a new key, and fingerprints differ from those of earlier scans"
        raise SecretError(f"{path} is no key for fingerprints: it has {len(key)} bytes and not {_KEY_BYTES}", hint=hint)
    return key


def _in_environments(scanner: Scanner, data: bytes, name: str, own: set[str]) -> list[Leak]:
    """Hits by process and variable, except for a secret in the variable in which it was passed."""
    leaks: list[Leak] = []
    for process in data.split(_BEGIN)[1:]:
        pid, *entries = process.split(b"\0")
        for entry in entries:
            variable = entry.partition(b"=")[0].decode("utf-8", "replace")
            meant = scanner.fingerprints.get(variable) if variable in own else None
            hits = [hit for hit in scanner.scan([entry]) if hit.fingerprint != meant]
            place = f"environment of {name}: {variable} of process {pid.decode('ascii', 'replace')}"
            leaks += [replace(leak, line=0) for leak in _summed(place, hits)]
    return leaks


async def _files(
    scanner: Scanner, root: Path, skip: Path, guest_folders: GuestFolders
) -> AsyncIterator[Leak | NotLooked]:
    found = files_below(root, skip, guest_folders)
    while (one := await asyncio.to_thread(next, found, None)) is not None:
        path, file = one
        if isinstance(file, str):
            yield NotLooked(path, file)
            continue
        try:
            hits = await asyncio.to_thread(_in_file, scanner, path, file)
        except OSError as error:
            yield NotLooked(path, error.strerror or type(error).__name__)
            continue
        for leak in _summed(path, hits):
            yield leak


def _in_file(scanner: Scanner, path: str, file: BinaryIO) -> list[Hit]:
    with file:
        hits = list(scanner.scan(iter(lambda: file.read(_CHUNK), b"")))
        if path.endswith(".cast") and file.seekable():
            reported = {hit.fingerprint for hit in hits}
            file.seek(0)
            joined = [hit for hit in scanner.scan(_played(file)) if hit.fingerprint not in reported]
            hits += [replace(hit, line=0) for hit in joined]
    return hits


def _played(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The joined output of a recording, because typed text is one character per event."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, list) and len(event) == 3 and event[1] in ("o", "i") and isinstance(event[2], str):
            yield event[2].encode("utf-8", "surrogatepass")


def _summed(location: str, hits: Iterable[Hit]) -> list[Leak]:
    """One hit for each secret and form at a place."""
    found: dict[tuple[str, str, str], Leak] = {}
    for hit in hits:
        key = (hit.secret, hit.what, hit.fingerprint)
        before = found.get(key)
        found[key] = replace(before, count=before.count + 1) if before else Leak(location, *key, line=hit.line)
    return list(found.values())
