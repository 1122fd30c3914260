"""Out-of-memory kills in this machine's kernel log, as far as this user may read it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from msgspec import Struct

PATH = "/dev/kmsg"
_RECORD_MOST = 8192
# dump_oom_summary of mm/oom_kill.c; /dev/kmsg begins each record with "priority,number,microseconds,flags;".
_KILL = re.compile(
    rb"\d+,\d+,(?P<at>\d+),[^;]*;oom-kill:constraint=(?P<why>\w+),.*?task_memcg=(?P<group>[^,]*),task=(?P<task>[^,\n]*),pid=(?P<pid>\d+)"
)


class OomKill(Struct, frozen=True):
    """One kill. ``at`` is seconds since the epoch; ``limit`` is whether a limit was reached, and not all of memory."""

    at: float
    pid: int
    group: str
    limit: bool


def oom_kills(id_: str, since: float) -> list[OomKill]:
    """The kills in control groups whose path has a sandbox's id, oldest first. Empty if it cannot be read. Blocks."""
    try:
        fd = os.open(PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        return [one for one in _kills(_records(fd)) if one.at >= since and id_ in one.group]
    finally:
        os.close(fd)


def _records(fd: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(fd, _RECORD_MOST)
        except BlockingIOError:
            return
        except BrokenPipeError:  # the oldest records were overwritten while this one read
            continue
        except OSError:
            return


def _kills(records: Iterator[bytes]) -> Iterator[OomKill]:
    booted = time.time() - time.monotonic()
    for record in records:
        if match := _KILL.match(record):
            group = match["group"].decode("utf-8", "replace")
            yield OomKill(
                booted + int(match["at"]) / 1e6, int(match["pid"]), group, match["why"] == b"CONSTRAINT_MEMCG"
            )
