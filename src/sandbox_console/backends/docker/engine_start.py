"""When an engine of this machine was started, and when the machine was.

An engine keeps its events in memory, so what it did to a container before it was restarted is in none of them.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

from sandbox_console.model.guest import GuestEvent

ENGINE, MACHINE = "engine_start", "machine_start"
_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid
_CONNECT_S = 1.0


def starts(path: str, since: float) -> Iterator[GuestEvent]:
    """The last start of the machine and of the engine that listens at a Unix socket, if after ``since``. Blocks."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    if booted > since:
        yield GuestEvent(booted, MACHINE)
    began = _began(path, booted)
    if began is not None and began > since:
        yield GuestEvent(began, ENGINE)


def _began(path: str, booted: float) -> float | None:
    """When the process that listens at a socket began; None if that is unknown, or a service manager listens for it."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_CONNECT_S)
            sock.connect(path)
            credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid = _CREDENTIALS.unpack(credentials)[0]
        if pid <= 1:  # systemd listens, or a process that this namespace does not show
            return None
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")  # starttime of proc_pid_stat(5)
    except (OSError, ValueError, IndexError):
        return None
