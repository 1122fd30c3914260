"""Opens a bundle as a read-only console. The bundle is checked first and unpacked into its own folder."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import structs

from sandbox_console.audit import query, schema
from sandbox_console.audit.journal import Journal
from sandbox_console.errors import AuditUnavailable, ConsoleError, NotFound
from sandbox_console.model.audit import AuditEntry, AuditQuery, AuditRow, Kind, Verification
from sandbox_console.model.bundle import BundleCheck, Bundled
from sandbox_console.service.config import Config
from sandbox_console.service.console import Console
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.incident.bundle_file import TRAILER
from sandbox_console.service.incident.bundle_reader import members
from sandbox_console.service.incident.bundle_verify import verify
from sandbox_console.service.incident.bundle_view import BundleView
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.hub import Hub

_WHY = "a bundle is only read, so nothing is done and nothing is recorded"


class BundleTrail(AuditLog):
    """The audit rows of a bundle. The bundle was checked when it was opened."""

    def __init__(self, path: Path, rows: Sequence[AuditRow], check: BundleCheck) -> None:
        super().__init__(path, "bundle", lambda _: None)
        self._check = check
        ends: defaultdict[int, list[AuditRow]] = defaultdict(list)
        for row in rows:
            if row.ref is not None:
                ends[row.ref].append(row)
        self._entries = [_entry(row, ends[row.seq]) for row in rows if row.kind is Kind.ATTEMPT][::-1]

    async def journal(self) -> Journal:
        raise AuditUnavailable(_WHY)

    async def entries(self, query: AuditQuery) -> list[AuditEntry]:
        found = (entry for entry in self._entries if _fits(entry, query))
        return [entry for _, entry in zip(range(query.limit), found, strict=False)]

    async def newest(self) -> int:
        return self._entries[0].attempt.seq if self._entries else 0

    async def entry(self, seq: int) -> AuditEntry:
        for one in self._entries:
            if seq in (one.attempt.seq, *(row.seq for row in (*one.notes, *([one.end] if one.end else [])))):
                return one
        raise NotFound(f"the bundle has no audit row {seq}")

    async def verify(
        self, folder: Path | None = None, public_key: bytes | None = None, archive: Path | None = None  # noqa: ARG002
    ) -> Verification:  # fmt: skip
        rows = self._check.manifest.rows if self._check.manifest else 0
        return Verification(self._check.ok, rows, "", limits=self._check.limits)


@asynccontextmanager
async def open_bundle(file: BinaryIO) -> AsyncIterator[Console]:
    """A console over a bundle for as long as the block lasts. Raises ConsoleError if the bundle is not intact."""
    check = await asyncio.to_thread(verify, file)
    if not check.ok or check.manifest is None:
        raise ConsoleError(f"the bundle is not opened: {check.problem}", hint="sandbox-console bundle verify FILE")
    folder = Path(tempfile.mkdtemp(prefix="sandbox-console-bundle-"))  # 0700
    try:
        await asyncio.to_thread(_unpack, file, check.bytes - TRAILER, folder)
        places: defaultdict[tuple[str, str], list[Bundled]] = defaultdict(list)
        for one in check.manifest.sandboxes:
            backend, host, *_ = one.ref.split("/")
            places[backend, host].append(one)
        views = [BundleView(*host_key, folder / "parts", bundled) for host_key, bundled in places.items()]
        audit_log = BundleTrail(folder / "state" / "audit" / "audit.db", list(_rows(folder / "parts" / "audit")), check)
        config = Config()
        config = structs.replace(config, policy=structs.replace(config.policy, read_only=True))
        console = Console(config, Fleet(views), audit_log, Hub())
        try:
            yield console
        finally:
            await console.close()
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _unpack(file: BinaryIO, size: int, folder: Path) -> None:
    """Write every part to a new file with its name, which the check has found to be plain."""
    for member in members(file, size):
        path = folder / "parts" / member.name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as out:
            for block in member.blocks:
                out.write(block)
    casts = folder / "state" / "recordings"
    for index in sorted((folder / "parts").glob("*/recordings-*.jsonl")):
        for line in index.read_bytes().splitlines():
            record = json.loads(line)
            casts.mkdir(mode=0o700, parents=True, exist_ok=True)
            name = Path(str(record["id"])).name
            shutil.copyfile(folder / "parts" / Path(index.parent.name) / "recordings" / Path(str(record["part"])).name,
                            casts / f"{name}.cast")  # fmt: skip


def _rows(folder: Path) -> Iterator[AuditRow]:
    for path in sorted(folder.glob("rows-*.jsonl")):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            columns: list[Any] = [record[name] for name in schema.COLUMNS if name != "prev"]
            columns[-1] = bytes.fromhex(columns[-1])
            yield query.row(tuple(columns))


def _entry(attempt: AuditRow, rest: Sequence[AuditRow]) -> AuditEntry:
    end = next((row for row in rest if row.kind in (Kind.OUTCOME, Kind.UNKNOWN)), None)
    return AuditEntry(attempt, end, tuple(row for row in rest if row.kind is Kind.NOTE))


def _fits(entry: AuditEntry, query: AuditQuery) -> bool:
    row, at = entry.attempt, entry.attempt.at_ns / 1e9
    targets = (row.target, entry.end.target if entry.end else "")
    words = (query.action, row.action), (query.backend, row.backend), (query.actor, row.actor)
    text = f"{row.target}\n{row.action}\n{json.dumps(row.body)}".casefold()
    return (
        (not query.target or query.target in targets)
        and all(not asked or asked == found for asked, found in words)
        and (not query.outcome or entry.outcome in query.outcome.split(","))
        and query.text.casefold() in text
        and (query.since is None or at >= query.since)
        and (query.until is None or at < query.until)
        and (query.before_seq is None or row.seq < query.before_seq)
    )
