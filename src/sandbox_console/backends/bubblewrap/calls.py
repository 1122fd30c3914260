"""The filter of system calls that a sandbox has, in what its supervisor is told and in what people are."""

from __future__ import annotations

import platform

from sandbox_console.backends import seccomp
from sandbox_console.backends.bubblewrap.state import Record
from sandbox_console.model.sandbox import Diagnosis, Fact
from sandbox_console.model.spec import SandboxSpec

_HOLDS = "no keyrings, io_uring, bpf, ptrace, mounts, namespaces, AF_VSOCK, AF_ALG; for every command in it"
_DEBUG = "no keyrings, io_uring, bpf, mounts, namespaces, AF_VSOCK, AF_ALG; debuggers work; for every command in it"
_OLD = "it was started by a console without the filter: restart it"


def program(spec: SandboxSpec) -> bytes:
    """The filter that a sandbox is started with; empty where it has none."""
    return b"" if spec.seccomp == "off" else seccomp.program(ptrace=spec.ptrace) or b""


def word(spec: SandboxSpec) -> str:
    """How a sandbox that is started now stands: ``filtered``, ``ptrace`` (filtered, and debuggers work), or without.

    ``off`` is without by its spec, ``unfiltered`` for want of a filter for this machine.
    """
    if spec.seccomp == "off":
        return "off"
    if not program(spec):
        return "unfiltered"
    return "ptrace" if spec.ptrace else "filtered"


def fact(record: Record) -> Fact:
    """What holds for it: as it was started while it runs, else as it would be."""
    live = record.status.live
    match record.raw.get("seccomp", "old") if live else word(record.spec):
        case "filtered":
            return Fact("seccomp", "filtered", _HOLDS)
        case "ptrace":
            return Fact("seccomp", "filtered", _DEBUG)
        case "off":
            return Fact("seccomp", "off", "asked for: it may make every system call", enforced=False)
        case "old":
            return Fact("seccomp", "unfiltered", _OLD, enforced=False)
        case _:
            return Fact("seccomp", "unfiltered", f"no filter for {platform.machine()}", enforced=False)


def diagnosis(records: list[Record]) -> Diagnosis:
    """Whether sandboxes are filtered here, and which of those that run are not."""
    if not program(SandboxSpec("any")):
        text = f"there is no filter of system calls for {platform.machine()}, only for {', '.join(seccomp.MACHINES)}"
        return Diagnosis("seccomp", "warning", text, "let only what you trust run in bubblewrap here")
    bare = [one.spec.name for one in records if one.status.live and fact(one).value != "filtered"]
    if bare:
        return Diagnosis("seccomp", "warning", f"not filtered: {', '.join(sorted(bare))}", "restart them with a filter")
    return Diagnosis("seccomp", "ok", "system calls of guests are filtered")
