"""Whether this host can boot a microVM, as far as can be seen without booting one."""

from __future__ import annotations

import errno
import os
import platform
import sys
from importlib.util import find_spec
from pathlib import Path

KVM = Path("/dev/kvm")
CPUINFO = Path("/proc/cpuinfo")

Problem = tuple[str, str]
"""What is wrong, and what to do about it."""

# What the runtime writes into a sandbox's system log when its boot fails, and what that means.
_BOOT_FAILURES = (
    ("KVM_EXIT_INTERNAL_ERROR", "/dev/kvm is there but cannot run a guest (KVM_EXIT_INTERNAL_ERROR)"),
    ("Error creating the Kvm object: Error(13)", "permission denied on /dev/kvm"),
    ("Error creating the Kvm object", "/dev/kvm could not be opened"),
)


def problem() -> Problem | None:
    """Why no microVM can boot here; None where nothing speaks against it. Reads a few files; blocks for no time."""
    if find_spec("microsandbox") is None:
        return (
            f"the microsandbox package is not installed (it has no wheel for {sys.platform} {platform.machine()})",
            "pip install microsandbox, on Linux x86-64 or arm64 or a Mac with Apple silicon",
        )
    return _kvm_problem() if sys.platform == "linux" else None


def boot_failure(log: bytes) -> str:
    """What a system log says about a boot that failed; empty where it says nothing of the kind."""
    text = log.decode("utf-8", "replace")
    return next((meaning for words, meaning in _BOOT_FAILURES if words in text), "")


def _kvm_problem() -> Problem | None:
    try:
        os.close(os.open(KVM, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.ENOENT:
            return "there is no /dev/kvm on this host", "load the kvm module, or enable (nested) virtualisation"
        if error.errno in (errno.EACCES, errno.EPERM):
            return "permission denied on /dev/kvm", "add your user to the group kvm and log in again"
        return f"/dev/kvm cannot be opened: {error.strerror}", "see that the kvm module works"
    if platform.machine() == "x86_64" and not _cpu_virtualises():
        return (
            "/dev/kvm is there, but the processor offers no virtualisation (neither vmx nor svm), so no guest can boot",
            "enable VT-x or AMD-V in the firmware, or nested virtualisation on the outer host",
        )
    return None


def _cpu_virtualises() -> bool:
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return True
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ["vmx"])
    return "vmx" in flags or "svm" in flags
