"""The lines of ``doctor`` about how strongly an engine isolates, from its /info."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from sandbox_console.backends.docker import syscall_filter
from sandbox_console.model.sandbox import Diagnosis

_AROUND = Diagnosis(
    "egress.host", "warning", "not enforced: the engine is in a virtual machine, and only its addresses are refused",
    "let nothing listen on the machine around it that a sandbox must not reach, or deny its addresses by rules",
)  # fmt: skip
_GUARDS = ("seccomp", "apparmor", "selinux", "rootless", "userns")


def look(info: Mapping[str, Any], no_gateway: str, *, apart: bool = False) -> Iterator[Diagnosis]:
    """One line per finding. ``no_gateway`` is why no sandbox can have egress or ports; empty if it can.

    ``apart`` says that gateways found the engine's network to be another one than its machine's.
    """
    system, kernel, driver = (info.get(key, "?") for key in ("OperatingSystem", "KernelVersion", "Driver"))
    size = f"{info.get('NCPU', '?')} CPUs, {int(info.get('MemTotal') or 0) >> 20} MiB"
    text = f"{system}, kernel {kernel}, {size}, {driver}, cgroup v{info.get('CgroupVersion', '?')}"
    yield Diagnosis("engine", "ok", text)
    yield _guards([str(one) for one in info.get("SecurityOptions") or ()])
    yield syscall_filter.diagnosis(info)
    names = sorted(info.get("Runtimes") or ())
    yield Diagnosis("runtimes", "ok", f"{', '.join(names)} (default {info.get('DefaultRuntime', '?')})")
    if no_gateway:
        yield Diagnosis("egress", "warning", no_gateway, "sandboxes without egress and ports need no gateway")
    else:
        yield Diagnosis("egress", "ok", "gateways can be made")
        if in_virtual_machine(info):
            yield _AROUND
        else:
            yield _own_addresses(apart=apart or "name=rootless" in map(str, info.get("SecurityOptions") or ()))
    for warning in info.get("Warnings") or ():
        yield Diagnosis("warning", "warning", str(warning).removeprefix("WARNING: "))


def in_virtual_machine(info: Mapping[str, Any]) -> bool:
    """Whether an engine that is reached by a socket of this machine runs on another kernel, as in Docker Desktop."""
    return bool(info.get("KernelVersion")) and info["KernelVersion"] != os.uname().release


def _own_addresses(*, apart: bool) -> Diagnosis:
    if not apart:
        return Diagnosis("egress.host", "ok", "gateways refuse the addresses of the engine's machine, read live")
    return Diagnosis(
        "egress.host", "warning", "not enforced: the engine has a network of its own, and its addresses are unknown",
        "let nothing listen there that a sandbox must not reach, or deny its addresses by rules",
    )  # fmt: skip


def _guards(options: list[str]) -> Diagnosis:
    # Each is "name=seccomp,profile=default".
    names = [part.partition("=")[2] for one in options for part in one.split(",") if part.startswith("name=")]
    found = [name for name in _GUARDS if name in names]
    if "seccomp" in found:
        return Diagnosis("security", "ok", ", ".join(found))
    return Diagnosis(
        "security", "warning", f"no seccomp{'; ' + ', '.join(found) if found else ''}",
        "guests may call every system call of the kernel: use an engine with seccomp",
    )  # fmt: skip
