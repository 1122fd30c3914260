"""Makes an evidence bundle: each sandbox's parts, the audit rows about them with their proof, a signed manifest."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct, field

from sandbox_console.audit import proof as proofs
from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Bundle
from sandbox_console.model.bundle import FORMAT, LINKS, MANIFEST, PUBLIC_KEY, ROWS, SIGNATURE, Absent, Bundled, Manifest
from sandbox_console.model.recording import Recording
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service.console import Console
from sandbox_console.service.gate.gate import Consent
from sandbox_console.service.gate.operation import ExecIO, Fetch
from sandbox_console.service.incident.bundle_file import Lines, Pack, WriteFailed, text
from sandbox_console.service.incident.bundle_parts import CollectOptions, Collector
from sandbox_console.version import __version__

FILES_MOST = 1 << 20
"""The largest changed file that is kept, in bytes, unless another size is given."""


class WrittenBundle(Struct):
    """A bundle that was written. ``rows`` counts the audit rows in it, ``failures`` is what could not be included."""

    manifest: Manifest
    bytes: int
    rows: dict[SandboxRef, int] = field(default_factory=dict)
    failures: dict[SandboxRef, ConsoleError] = field(default_factory=dict)


async def bundle(
    console: Console, sandboxes: Sequence[Sandbox], write: Callable[[bytes], object], *, until: float,
    files_most: int = FILES_MOST, consent: Callable[[Sandbox], Consent] = lambda _: Consent(),
) -> WrittenBundle:  # fmt: skip
    """Write a bundle through ``write``, which is called in a thread; each sandbox is an action of its own.

    A sandbox that cannot be read is listed as missing. Raises WriteFailed, AuditUnavailable.
    """
    pack = Pack(write)
    order = CollectOptions(until, files_most, await _recordings(console))
    maker = _Maker(console, pack, order)
    for number, sandbox in enumerate(sandboxes, 1):
        await maker.add(sandbox, f"{number:03d}-{_plain(sandbox.name)}", consent(sandbox))
    manifest = await maker.end([str(one.ref) for one in sandboxes])
    return WrittenBundle(manifest, await asyncio.to_thread(pack.end), maker.rows, maker.failures)


class _Maker:
    """A bundle in the making."""

    def __init__(self, console: Console, pack: Pack, order: CollectOptions) -> None:
        self._console, self._pack, self._order = console, pack, order
        self._done: list[Bundled] = []
        self.rows: dict[SandboxRef, int] = {}
        self.failures: dict[SandboxRef, ConsoleError] = {}

    async def add(self, sandbox: Sandbox, folder: str, consent: Consent) -> None:
        """Carry out the action on one sandbox. Raises WriteFailed."""

        async def evidence(fetch: Fetch) -> Mapping[str, object]:
            found = await self._console.inspect(sandbox.ref)
            collector = Collector(self._console, found, folder, self._pack, self._order, fetch)
            since = len(self._pack.parts)
            self._done.append(await collector.run())
            return collector.details(since)

        action = Bundle(sandbox.ref, self._order.files_most)
        operation = self._console.perform(action, consent=consent, io=ExecIO(evidence=evidence))
        try:
            self.rows[sandbox.ref] = (await operation.result()).audit_id
        except asyncio.CancelledError:
            operation.cancel()
            raise
        except WriteFailed:
            raise
        except ConsoleError as error:
            self.failures[sandbox.ref] = error
            mask = await self._console.inside.mask(sandbox.ref) if error.exit_code != 5 else str
            self._done.append(Bundled(mask(sandbox.name), str(sandbox.ref), folder, (Absent("all", error.message),)))

    async def end(self, refs: Sequence[str]) -> Manifest:
        """Write the audit rows and the manifest. Raises WriteFailed, AuditUnavailable."""
        audit_log = self._console.audit_log
        await (await audit_log.journal()).anchor("bundle")
        proof = await proofs.proof(audit_log.path, refs, self._order.until)
        await self._proof(proof)
        missing = []
        if proof.unproved:
            reason = f"{len(proof.unproved)} rows are in a part of the log that links no rows, or are not anchored"
            missing.append(Absent("audit proof", reason))
        parts = tuple(self._pack.parts)
        manifest = Manifest(
            FORMAT, __version__, self._order.until, audit_log.actor, tuple(self._done), parts, len(proof.seqs),
            len(proof.unproved), sum(part.redacted for part in parts), tuple(missing),
        )  # fmt: skip
        document = text(msgspec.to_builtins(manifest), indent=1)
        await asyncio.to_thread(self._pack.add, MANIFEST, document)
        await asyncio.to_thread(self._pack.add, SIGNATURE, audit_log.sign(signed_text(document)))
        return manifest

    async def _proof(self, proof: proofs.Proof) -> None:
        path = self._console.audit_log.path
        await asyncio.to_thread(self._pack.add, PUBLIC_KEY, self._console.audit_log.public_key())
        anchors = Lines(self._pack, "audit/anchors")
        await asyncio.to_thread(anchors.put, map(proofs.anchor_line, proof.anchors))
        await asyncio.to_thread(anchors.flush)
        for stem, ending, blocks in (
            (ROWS, "jsonl", proofs.rows(path, proof.seqs)),
            (LINKS, "tsv", proofs.links(path, proof.runs)),
        ):
            lines = Lines(self._pack, stem, ending=ending)
            async for block in blocks:
                await asyncio.to_thread(lines.put, block)
            await asyncio.to_thread(lines.flush)


def signed_text(manifest: bytes) -> bytes:
    """The text that the signature of a manifest covers: a line with the format, and the manifest."""
    return FORMAT.encode() + b"\n" + manifest


async def _recordings(console: Console) -> Sequence[Recording]:
    try:
        return sorted(await console.recordings.list(), key=lambda recording: recording.id)
    except (ConsoleError, OSError):
        return ()


def _plain(name: str) -> str:
    """A name in a form that can be part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:40] or "_"
