"""Checks whether this host can boot a microVM, by trying what a boot needs without booting one."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from sandbox_console.backends.microsandbox import kvm_probe

KVM = Path("/dev/kvm")

TRIED = sys.platform == "linux" and platform.machine() == "x86_64"
"""Whether a guest's instructions are tried here; on other machines only the last real boot shows whether it works."""

Problem = tuple[str, str]
"""What is wrong, and what to do about it."""

_NESTED = "run it on the host itself, or in a virtual machine whose host has nested virtualisation on"
_PATIENCE_S = 30.0


def problem() -> Problem | None:
    """Why no microVM can boot here; None if no problem is found.

    The first time it starts a small program (0.1 s), later it only opens /dev/kvm. Both block, so use a thread.
    """
    if find_spec("microsandbox") is None:
        return (
            f"the microsandbox package is not installed (it has no wheel for {sys.platform} {platform.machine()})",
            "pip install microsandbox, on Linux x86-64 or arm64 or a Mac with Apple silicon",
        )
    return _kvm_problem() if sys.platform == "linux" else None


def _kvm_problem() -> Problem | None:
    try:
        descriptor = os.open(KVM, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        return _cannot_open(error)
    try:
        made = os.fstat(descriptor).st_ctime_ns
    finally:
        os.close(descriptor)
    if not TRIED:
        return None
    verdict = _tried(str(KVM), made)
    if verdict == "ok":
        return None
    return f"/dev/kvm is there, but cannot run a guest in 64-bit mode with paging ({verdict})", _NESTED


def _cannot_open(error: OSError) -> Problem:
    if error.errno == errno.ENOENT:
        return "there is no /dev/kvm on this host", "load the kvm module, or enable (nested) virtualisation"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "permission denied on /dev/kvm", "add your user to the group kvm and log in again"
    return f"/dev/kvm cannot be opened: {error.strerror}", "check that the kvm module works"


@lru_cache(maxsize=4)
def _tried(device: str, _made: int) -> str:
    """The probe's verdict, kept as long as the device stays the same."""
    command = [sys.executable, "-I", "-S", kvm_probe.__file__, device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the test of it did not end: {error}"
    if done.returncode:
        return "a guest that never comes back" if done.returncode < 0 else done.stderr.strip()[-200:]
    return done.stdout.strip()
