"""A sandbox's system call filter, in the supervisor's form and in words."""

from __future__ import annotations

import platform

from sandbox_console.backends import seccomp
from sandbox_console.backends.bubblewrap.state import Record
from sandbox_console.model.sandbox import Diagnosis, Fact
from sandbox_console.model.spec import SandboxSpec

_REFUSED = "no keyrings, io_uring, bpf, {}AF_VSOCK, AF_ALG; {}for every command in it"
_OLD = "it was started by a console without the filter: restart it"
_RELAXED = ("ptrace", "nested_userns")
"""Settings of a spec that allow more calls. A status lists them side by side."""


def program(spec: SandboxSpec) -> bytes:
    """The filter that a sandbox is started with; empty if it has none."""
    return b"" if spec.seccomp == "off" else seccomp.program(ptrace=spec.ptrace, nested=spec.nested_userns) or b""


def word(spec: SandboxSpec) -> str:
    """The filter's state for a sandbox that is started now: ``filtered``, or with additions (``ptrace``).

    ``off`` means no filter by its spec, ``unfiltered`` that there is no filter for this machine.
    """
    if spec.seccomp == "off":
        return "off"
    if not program(spec):
        return "unfiltered"
    return "+".join(name for name in _RELAXED if getattr(spec, name)) or "filtered"


def fact(record: Record) -> Fact:
    """The filter that applies to a sandbox: while it is running, the one that it was started with."""
    live = record.status.live
    match str(record.raw.get("seccomp", "old") if live else word(record.spec)):
        case "off":
            return Fact("seccomp", "off", "as requested: it may make every system call", enforced=False)
        case "old":
            return Fact("seccomp", "unfiltered", _OLD, enforced=False)
        case "unfiltered":
            return Fact("seccomp", "unfiltered", f"no filter for {platform.machine()}", enforced=False)
        case how:
            return Fact("seccomp", "filtered", _note(set(how.split("+"))))


def _note(requested: set[str]) -> str:
    """What a filter refuses, and what the spec allows."""
    refused = [] if "ptrace" in requested else ["ptrace"]
    refused += [] if "nested_userns" in requested else ["mounts", "namespaces"]
    works = ["debuggers"] if "ptrace" in requested else []
    works += ["user namespaces"] if "nested_userns" in requested else []
    return _REFUSED.format("".join(f"{one}, " for one in refused), f"{' and '.join(works)} work; " if works else "")


def diagnosis(records: list[Record]) -> Diagnosis:
    """Whether sandboxes are filtered on this machine, and which of the running ones are not."""
    if not program(SandboxSpec("any")):
        text = f"there is no filter of system calls for {platform.machine()}, only for {', '.join(seccomp.MACHINES)}"
        return Diagnosis("seccomp", "warning", text, "let only what you trust run in bubblewrap here")
    bare = [one.spec.name for one in records if one.status.live and fact(one).value != "filtered"]
    if bare:
        return Diagnosis("seccomp", "warning", f"not filtered: {', '.join(sorted(bare))}", "restart them with a filter")
    return Diagnosis("seccomp", "ok", "system calls of guests are filtered")
