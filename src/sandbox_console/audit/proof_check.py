"""Checks rows of another machine's log with its public key. See ``proof``."""

from __future__ import annotations

import json
from typing import Any

from sandbox_console.audit import chain, schema
from sandbox_console.audit.anchors import Anchor, sealed_text
from sandbox_console.audit.keys import PublicKey

MOST = 1_000_000
"""The most rows and anchors whose hashes are held at a time."""


class ProofCheck:
    """Takes anchors, then rows, then links, each as a line. Every method raises ValueError with what is wrong."""

    def __init__(self, public: PublicKey) -> None:
        self._public = public
        self._anchored: dict[int, bytes] = {}
        self._rows: dict[int, bytes] = {}
        self._last: tuple[int, bytes] | None = None
        self._log = ""
        self.rows = 0

    def anchor(self, line: bytes) -> None:
        """Check an anchor: it must be signed by the log's key, and all must be from one log."""
        found = _object(line, "an anchor")
        try:
            made = Anchor(**found)
            seq, digest = int(made.seq), bytes.fromhex(made.hash)
            holds = self._public.holds(made.sig, sealed_text(found, "mac", "sig"))
        except (TypeError, ValueError):
            raise ValueError("an anchor is malformed") from None
        if not holds:
            raise ValueError(f"the anchor at row {seq} is not signed by the key of this log")
        if self._log not in ("", made.console):
            raise ValueError(f"the anchor at row {seq} is of another log")
        self._log = made.console
        self._keep(self._anchored, seq, digest, "anchor")

    def row(self, line: bytes) -> None:
        """Keep a row's hash until its link arrives."""
        found = _object(line, "a row of the audit log")
        try:
            columns = [found.pop(name) for name in schema.COLUMNS]
            digest = chain.row_hash(columns[: chain.PREV])
            seq = int(columns[0])
        except (KeyError, TypeError, ValueError):
            raise ValueError("a row of the audit log is malformed") from None
        if found:
            raise ValueError(f"row {seq} of the audit log has columns that no row has")
        self.rows += 1
        self._keep(self._rows, seq, digest, "row")
        linked = chain.link(_hex(columns[chain.PREV]), digest)
        if linked != _hex(columns[chain.HASH]):
            raise ValueError(f"row {seq} of the audit log does not match its hash: it was edited or made up")

    def link(self, line: bytes) -> None:
        """Check a link: it must follow the one before it, and the last of a run must be anchored."""
        try:
            seq_, prev_, row_, hash_ = line.decode("ascii").rstrip("\n").split("\t")
            seq, prev, row, digest = int(seq_), bytes.fromhex(prev_), bytes.fromhex(row_), bytes.fromhex(hash_)
        except ValueError:
            raise ValueError("a link of the audit log is malformed") from None
        if self._last is not None and seq != self._last[0] + 1:
            self._end_run()
        if self._last is not None and prev != self._last[1]:
            raise ValueError(f"row {seq} of the audit log does not follow the row before it")
        if chain.link(prev, row) != digest:
            raise ValueError(f"the link of row {seq} of the audit log was edited")
        if self._anchored.get(seq, digest) != digest:
            raise ValueError(f"row {seq} of the audit log is not the one that was anchored: the log was rewritten")
        if self._rows.pop(seq, row) != row:
            raise ValueError(f"row {seq} of the audit log is not the one that is linked: it was edited or made up")
        self._last = seq, digest

    def end(self, unproved: int) -> None:
        """Finish after the last link. ``unproved`` is the number of rows that are known to have no proof."""
        if self._last is not None:
            self._end_run()
        if len(self._rows) != unproved:
            seq = min(self._rows, default=0)
            raise ValueError(f"row {seq} of the audit log is not linked to an anchor: it may be made up")

    def _end_run(self) -> None:
        assert self._last is not None  # noqa: S101
        seq, digest = self._last
        if self._anchored.get(seq) != digest:
            raise ValueError(f"row {seq} of the audit log ends a run of links, and no signed anchor has its hash")
        self._last = None

    def _keep(self, table: dict[int, bytes], seq: int, digest: bytes, noun: str) -> None:
        if seq in table:
            raise ValueError(f"{noun} {seq} of the audit log is there twice")
        if len(table) >= MOST:
            raise ValueError(f"there are more than {MOST:,} of the audit log's {noun}s")
        table[seq] = digest


def _object(line: bytes, noun: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"{noun} is no JSON") from None
    if not isinstance(found, dict):
        raise ValueError(f"{noun} is no object")  # noqa: TRY004 - the content is wrong, not a type here
    return found


def _hex(value: Any) -> bytes:
    return bytes.fromhex(value) if isinstance(value, str) else b""
