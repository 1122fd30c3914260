"""The paths of the log's files: segments, manifests, anchors, the reserve, the lock and the sessions."""

from __future__ import annotations

import re
import stat
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

PLANTED = "planted"
"""The ending of a file that was beside a segment and was set aside."""

_NOTE_MOST = 1 << 20
"""The most bytes of a manifest or another note; ours have a few hundred."""

_MOST = {"reserve": 64 << 20, "anchors.jsonl": 256 << 20}
"""The most bytes of other files that are read whole: the reserve has 8 MiB, an anchor about 300 bytes."""

_MOST_BY_SUFFIX = {".json": _NOTE_MOST, ".pages": 64 << 20}
"""The most bytes of files with these suffixes: a page of a segment takes 32 bytes."""


class Layout(Struct, frozen=True):
    """The log whose first segment is ``first``; the segment with the highest index is the one being written."""

    first: Path
    archive: Path | None = None  # the folder to which retention moved old segments

    @property
    def folder(self) -> Path:
        """The folder that contains all files."""
        return self.first.parent

    @property
    def lock(self) -> Path:
        """The file that every append locks with flock."""
        return self.first.with_suffix(".lock")

    @property
    def sessions(self) -> Path:
        """The folder of the sessions' locks."""
        return self.folder / "sessions"

    def urgent(self, session: str) -> Path:
        """The file of a session's urgent rows that could not wait for the lock."""
        return self.sessions / f"{session}.urgent"

    @property
    def anchors(self) -> Path:
        """Signed heads of the chain, one JSON line each."""
        return self.folder / "anchors.jsonl"

    @property
    def key(self) -> Path:
        """The anchors' key, of mode 0600."""
        return self.folder / "anchor.key"

    @property
    def head(self) -> Path:
        """A copy of the last row and the newest anchor, written after each append."""
        return self.folder / "head.json"

    @property
    def pages(self) -> Path:
        """A digest of each page of the newest segment."""
        return self.first.with_suffix(".pages")

    @property
    def reserve(self) -> Path:
        """Space reserved for outcomes, and for stopping things, when the disk is full."""
        return self.folder / "reserve"

    @property
    def cursor(self) -> Path:
        """The file that says how far the log was shipped."""
        return self.folder / "shipped.json"

    @property
    def otlp_cursor(self) -> Path:
        """The file that says how far the log was shipped by OTLP."""
        return self.folder / "shipped-otlp.json"

    def segment(self, index: int) -> Path:
        """The file of a segment; the first has index 1."""
        return self.first if index == 1 else self.first.with_name(f"{self.first.stem}-{index:06d}.db")

    def manifest(self, index: int) -> Path:
        """The manifest of a sealed segment, which is kept when the segment is removed."""
        return self.first.with_name(f"{self.first.stem}-{index:06d}.manifest.json")

    def summary(self, index: int) -> Path:
        """A cache of which pieces of text a sealed segment's blocks contain."""
        return self.segment(index).with_suffix(".grams")

    def quarantine(self, index: int) -> Path:
        """The note of why a damaged segment was left, and where the next one begins."""
        return self.first.with_name(f"{self.first.stem}-{index:06d}.quarantine.json")

    def strange(self) -> str:
        """What in the folder does not belong to a log, and why; empty if everything belongs.

        Reading a copy that somebody else made must not hang on a pipe or fill the memory with a huge note.
        """
        for path in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if f".{PLANTED}" in path.name:  # set aside, and read by nobody
                continue
            try:
                st = path.stat()
            except OSError:  # gone by now, or a link to nothing, which is noticed when it is read
                continue
            if not stat.S_ISREG(st.st_mode) and (
                not stat.S_ISDIR(st.st_mode) or path in (self.anchors, self.head, self.reserve)
            ):
                return f"{path.name} is not a file"
            limit = _MOST.get(path.name, _MOST_BY_SUFFIX.get(path.suffix, st.st_size))
            if st.st_size > limit:
                noun = "a note" if path.suffix == ".json" else "one"
                return f"{path.name} has {st.st_size} bytes, and {noun} of ours never {limit}"
        return ""

    def damaged(self) -> str:
        """What is in place of a file that a writer reads, and why it cannot be one; empty if all can be used."""
        for path in (self.anchors, self.head, self.pages, self.reserve, self.cursor, self.lock):
            with suppress(FileNotFoundError):
                st = path.lstat()
                if not stat.S_ISREG(st.st_mode):
                    return f"{path} is not a file"
                limit = _MOST.get(path.name, _MOST_BY_SUFFIX.get(path.suffix, st.st_size))
                if st.st_size > limit:
                    return f"{path} has {st.st_size} bytes, and one of ours never {limit}"
        return ""

    def indices(self) -> list[int]:
        """The segments in the folder, oldest first."""
        pattern = re.compile(re.escape(self.first.stem) + r"-([0-9]{6,})\.db\Z")
        found = [1] if self.first.exists() else []
        try:
            names = [path.name for path in self.folder.iterdir()]
        except FileNotFoundError:
            return found
        numbers = [int(match[1]) for name in names if (match := pattern.match(name))]
        # Each number has exactly one valid name, or a second file would be read as the same segment.
        return sorted(found + [index for index in numbers if index > 1 and self.segment(index).name in names])

    def archived(self, before: int) -> list[int]:
        """The segments in the archive that lead up to segment ``before`` without a gap, oldest first."""
        there = set(Layout(self.archive / self.first.name).indices()) if self.archive else set()
        oldest = before
        while oldest - 1 in there:
            oldest -= 1
        return list(range(oldest, before))

    def stored(self, index: int) -> Path:
        """Where a segment is now: in the folder, or else in the archive."""
        here = self.segment(index)
        return self.archive / here.name if self.archive and not here.exists() else here

    def newest(self) -> int:
        """The index of the segment to write; 1 if there is none yet."""
        return max(self.indices(), default=1)
