"""The system call filter of the containers that this console makes.

An engine's own default may let through sockets of AF_VSOCK (Docker before 23), those of AF_ALG (before May 2026), and
either one if the upper half of the family's register is not 0, or through socketcall(2) of 32-bit x86.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sandbox_console.backends import seccomp
from sandbox_console.model.sandbox import Diagnosis, Fact

_DEFAULTS = ("default", "builtin")  # its names before and since 23.0
_IMAGES = ("", "amd64", "arm64")  # programs of 386 images can create sockets only with socketcall
_CLOSED = "no sockets of AF_VSOCK and AF_ALG"


def options(info: Mapping[str, Any], image: Mapping[str, Any]) -> list[str]:
    """The values for SecurityOpt; empty if the operator gave the engine another profile, or it has none.

    ``image`` is as inspected.
    """
    ours = _profile(info) in _DEFAULTS and str(info.get("Architecture")) in seccomp.MACHINES
    return [f"seccomp={seccomp.docker_profile()}"] if ours and str(image.get("Architecture") or "") in _IMAGES else []


def _profile(info: Mapping[str, Any]) -> str:
    """What the engine reports: ``name=seccomp,profile=default``; empty if it has no seccomp."""
    for one in info.get("SecurityOptions") or ():
        parts = dict(part.partition("=")[::2] for part in str(one).split(","))
        if parts.get("name") == "seccomp":
            return parts.get("profile", "default")
    return ""


def fact(security: Sequence[str]) -> Fact:
    """The filter that applies to a container, according to its SecurityOpt."""
    named = [one[len("seccomp") + 1 :] for one in security if one.startswith("seccomp")]
    if not named:
        return Fact("seccomp", "the engine's default", "some let sockets of AF_VSOCK and AF_ALG through")
    if named[0] == seccomp.docker_profile():
        return Fact("seccomp", "this console's profile", f"as Docker's default, and {_CLOSED}")
    if named[0] == "unconfined":
        return Fact("seccomp", "unconfined", "it may make every system call", enforced=False)
    return Fact("seccomp", "a profile of its own" if named[0].startswith("{") else named[0])


def diagnosis(info: Mapping[str, Any]) -> Diagnosis:
    """The filter that new sandboxes of an engine get."""
    if options(info, {}):
        return Diagnosis("seccomp", "ok", f"this console's profile: as Docker's default, and {_CLOSED}")
    name = _profile(info)
    if name in ("", "unconfined"):
        return Diagnosis("seccomp", "warning", f"{name or 'off'} on this engine, and so for its sandboxes",
                         "use an engine with its default profile")  # fmt: skip
    return Diagnosis("seccomp", "ok", f"the engine's profile {name}, which this console leaves as it is")
