"""System call filters as data: ``scripts/seccomp.py`` compiles them from ``calls.json``, which names its source.

What a filter refuses fails with EPERM: keyrings, io_uring, userfaultfd, bpf, perf, ptrace, mounts, namespaces, sockets
of AF_VSOCK and AF_ALG, the ioctl commands TIOCSTI and TIOCLINUX, and socketcall (of 32-bit x86), which hides its
arguments. A call that is in no list, clone3 (whose flags no filter sees) and every call by an x32 number fails with
ENOSYS, so that a C library falls back to an older one.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
MACHINES = ("x86_64", "aarch64")
"""The machines that there are filters for, as ``uname -m`` reports them."""


@cache
def program(*, ptrace: bool = False, nested: bool = False) -> bytes | None:
    """The filter for this machine, as prctl(2) and bwrap take it; None if there is none for it.

    With ``ptrace``, debuggers work on processes of their own sandbox; with ``nested``, a guest can create namespaces of
    its own and mount in them.
    """
    machine = platform.machine()
    if machine not in MACHINES:
        return None
    return (_FOLDER / f"{machine}{'-ptrace' if ptrace else ''}{'-nested' if nested else ''}.bpf").read_bytes()


@cache
def docker_profile() -> str:
    """A profile for Docker, as one line of JSON: the engine's own, with no form of socket(2) that gets around it."""
    return (_FOLDER / "docker.json").read_text().strip()
