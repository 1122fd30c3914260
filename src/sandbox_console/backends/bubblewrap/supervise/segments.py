"""The main process's output on disk: numbered files of framed chunks, of which the oldest are removed.

A file begins with MAGIC and the number of lines before it; then come frames: time in ns since the epoch, kind, length,
bytes. A frame is what one read of a pipe returned: it may hold many lines or a part of one.
"""

import errno
import os
import struct
import time

MAGIC = b"SBXLOG1\n"
HEAD = struct.Struct("<8sQ")
FRAME = struct.Struct("<QBI")
STDOUT, STDERR, GAP = 1, 2, 3
FILES_MOST = 256
_PAUSE_S = 0.25  # during a flood: a gap for each chunk would itself be a flood


def numbers(folder: str) -> list[int]:
    """The numbers of the existing files, oldest first."""
    return sorted(int(name[:-4]) for name in os.listdir(folder) if name.endswith(".log") and name[:-4].isdigit())


def path_of(folder: str, number: int) -> str:
    """The path of the file with this number."""
    return f"{folder}/{number:08d}.log"


class Writer:
    """Appends to the newest file. A full disk loses output, never the sandbox: the loss is recorded later.

    Output beyond ``rate`` bytes a second (0: no limit) is left out too, for a quarter of a second at a time; a GAP
    records how much: the lines for a full disk, the lines and the bytes for a flood. It is written before the next
    output, or by ``tell_losses`` if none follows.
    """

    def __init__(self, folder: str, size: int, keep: int, rate: int = 0) -> None:
        self._folder, self._size, self._keep = folder, size, keep
        self._lost = 0
        self._rate = self._credit = float(rate)
        self._at = time.monotonic()
        self._floods = False
        self._flood = [0, 0]  # lines and bytes that were left out
        self._fd = -1
        os.makedirs(folder, mode=0o700, exist_ok=True)
        have = numbers(folder)
        self._number = have[-1] if have else 0
        self._lines = next((lines for number in reversed(have) if (lines := self._count(number)) is not None), 0)
        self._next()

    def _count(self, number: int) -> int | None:
        """The lines before the end of a file that an earlier supervisor wrote; None if it was killed as it began it."""
        with open(path_of(self._folder, number), "rb") as file:
            head = file.read(HEAD.size)
            if len(head) < HEAD.size:
                return None
            lines: int = HEAD.unpack(head)[1]
            while len(frame := file.read(FRAME.size)) == FRAME.size:
                _at, kind, length = FRAME.unpack(frame)
                data = file.read(length)
                lines += data.count(b"\n") if kind != GAP else 0
            return lines

    def _next(self) -> None:
        path = path_of(self._folder, self._number + 1)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            _write_whole(fd, HEAD.pack(MAGIC, self._lines))
        except OSError:
            os.close(fd)
            os.unlink(path)  # otherwise it could not be made once there is room
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._number, self._used = fd, self._number + 1, HEAD.size
        self._drop()

    def _drop(self) -> None:
        """Remove the oldest files beyond the limit. Each run of a sandbox begins a file, even if it writes little."""
        *older, _ = numbers(self._folder)
        room = (self._keep - 1) * (self._size + FRAME.size)
        for place, number in enumerate(reversed(older)):
            path = path_of(self._folder, number)
            room -= os.stat(path).st_size
            if room < 0 or place >= FILES_MOST:
                os.unlink(path)

    def write(self, kind: int, data: bytes) -> None:
        """Append one chunk."""
        lines = data.count(b"\n")
        if self._rate and self._is_flood(len(data)):
            self._flood = [self._flood[0] + lines, self._flood[1] + len(data)]
            return
        try:
            if self._used + len(data) > self._size:
                self._next()
            self._append(self._gaps() + _frame(kind, data))
            self._lines += lines
        except OSError:
            self._lost += max(lines, 1)

    @property
    def owes(self) -> bool:
        """Whether output was left out that no GAP has recorded yet."""
        return bool(self._lost or self._flood[1])

    def tell_losses(self) -> None:
        """Record what was left out, if the disk has room for it."""
        try:
            self._append(self._gaps())
        except OSError:
            pass

    def _is_flood(self, size: int) -> bool:
        now = time.monotonic()
        self._credit = min(self._rate, self._credit + (now - self._at) * self._rate)
        self._at = now
        self._floods = self._credit < (self._rate * _PAUSE_S if self._floods else 0)
        if not self._floods:
            self._credit -= size
        return self._floods

    def _gaps(self) -> bytes:
        lost = _frame(GAP, str(self._lost).encode()) if self._lost else b""
        return lost + (_frame(GAP, b"%d %d" % tuple(self._flood)) if self._flood[1] else b"")

    def _append(self, frames: bytes) -> None:
        """Append the gaps that are owed, alone or with output: a gap for each chunk would fill the disk again."""
        try:
            _write_whole(self._fd, frames)
        except OSError:  # the disk is full: remove an incomplete frame
            os.ftruncate(self._fd, self._used)
            os.lseek(self._fd, self._used, os.SEEK_SET)
            raise
        self._used += len(frames)
        self._lost, self._flood = 0, [0, 0]


def _write_whole(fd: int, data: bytes) -> None:
    if os.write(fd, data) < len(data):
        raise OSError(errno.ENOSPC, "no space")


def _frame(kind: int, data: bytes) -> bytes:
    return FRAME.pack(time.time_ns(), kind, len(data)) + data
