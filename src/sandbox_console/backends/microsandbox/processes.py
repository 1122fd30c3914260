"""Parses the processes of a microVM, from what ``guest_scripts.processes`` reads from its /proc (proc(5))."""

from __future__ import annotations

from collections.abc import Iterator

from sandbox_console.model.guest import GuestProcess

_TICKS = 100  # USER_HZ of every Linux that can run in a microVM


def parse(text: bytes) -> list[GuestProcess]:
    """Every process except the kernel's own threads and those of the script itself."""
    own, _, records = text.partition(b"\n")
    return [process for process in _all(records, own.strip()) if process.parent != 2 and process.pid != 2]


def _all(text: bytes, own: bytes) -> Iterator[GuestProcess]:
    """The processes of every session except ``own``."""
    for record in text.split(b"\0\n\n"):
        lines = record.split(b"\n", 2)
        if len(lines) < 3:
            continue
        head, _, tail = lines[0].rpartition(b")")
        pid, _, name = head.partition(b" (")
        fields, (uid, rss) = tail.split(), lines[1].split()
        if len(fields) < 22 or not pid.isdigit() or fields[3] == own:
            continue
        command = lines[2].replace(b"\0", b" ").strip() or b"[" + name + b"]"
        yield GuestProcess(
            pid=int(pid),
            parent=int(fields[1]),
            user="" if uid == b"-" else uid.decode(),
            cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
            memory_bytes=int(rss) * 1024,
            state=fields[0].decode("ascii", "replace"),
            command=command.decode("utf-8", "surrogateescape"),
        )
