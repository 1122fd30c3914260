"""How large a segment may grow, and how long old ones are kept. Whole segments are removed; manifests stay."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:  # every command imports `RetentionPolicy` with the configuration
    from sandbox_console.audit.anchors import Anchors
    from sandbox_console.audit.layout import Layout

MIB = 1024 * 1024


class RetentionPolicy(Struct, frozen=True):
    """When a segment is sealed (``segment_bytes``), and how much is kept (``days`` and ``segments``; None keeps all).

    ``archive`` is a folder that old segments are moved to; without one they are removed.
    """

    segment_bytes: int = 32 * MIB
    days: float | None = None
    segments: int | None = None
    archive: Path | None = None


def too_old(layout: Layout, keep: RetentionPolicy, anchors: Anchors) -> list[dict[str, Any]]:
    """The manifests of sealed segments that are too old or too many, oldest first."""
    from sandbox_console.audit.segments import read_signed

    sealed = layout.indices()[:-1]
    too_many = set(sealed[: max(0, len(sealed) + 1 - keep.segments)]) if keep.segments else set()
    before_ns = time.time_ns() - int(keep.days * 86400e9) if keep.days else 0
    found: list[dict[str, Any]] = []
    for index in sealed:
        manifest, _ = read_signed(layout.manifest(index), anchors.keys)
        if manifest is None or not (index in too_many or manifest["sealed_at_ns"] < before_ns):
            break  # oldest first and without a gap, so the rest stays one chain
        found.append({name: manifest[name] for name in ("segment", "first_seq", "last_seq", "last_hash")})
    return found


def remove_segment(path: Path, archive: Path | None) -> None:
    """Remove a segment's files, or move them to the archive (except for the summary). Raises OSError."""
    path.with_suffix(".grams").unlink(missing_ok=True)
    for part in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm"))):
        if not part.exists():
            continue
        if archive is None:
            part.unlink()
        else:
            archive.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.replace(archive / part.name)
