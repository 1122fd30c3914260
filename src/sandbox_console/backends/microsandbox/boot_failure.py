"""Finds out why a boot failed, from the files that the runtime left: boot-error.json and its system log."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path

from sandbox_console.backends.microsandbox import kvm
from sandbox_console.backends.microsandbox.sdk import home

Cause = tuple[str, str]
"""What went wrong, and what to do about it."""

_KVM_HINT = "run it on the host itself, or in a virtual machine whose host has nested virtualisation on"
# What the runtime writes into its log when a boot fails (0.7.11), what that means, and the next step.
_CAUSES: tuple[tuple[str, Cause], ...] = (
    ("KVM_EXIT_INTERNAL_ERROR", ("/dev/kvm is there but cannot run a guest (KVM_EXIT_INTERNAL_ERROR)", _KVM_HINT)),
    ("KVM_EXIT_FAIL_ENTRY", ("/dev/kvm is there but cannot run a guest (KVM_EXIT_FAIL_ENTRY)", _KVM_HINT)),
    ("Kvm object: Error(13)", ("permission denied on /dev/kvm", "add your user to the group kvm and log in again")),
    ("Kvm object: Error(2)", ("there is no /dev/kvm on this host", "load the kvm module, or enable virtualisation")),
    ("Kvm object", ("/dev/kvm could not be opened", "check that the kvm module works: sandbox-console doctor")),
    ("xattr", ("its files cannot keep extended attributes", "put MSB_HOME and the folder on ext4, xfs or btrfs")),
    ("guest user not found", ("its image has no such user", "name a user that it has, or leave user out")),
    ("No space left on device", ("the disk is full", "free space where MSB_HOME is")),
)
# Only the runtime's own lines: others may contain text that a guest has chosen, such as a requested path.
_OWN = r"^\S+ +[A-Z]+ microsandbox_runtime\S*: "
_SAID = re.compile(_OWN + "(.*)$", re.MULTILINE)
_BEGIN = re.compile(_OWN + "sandbox starting ", re.MULTILINE)
_READY = re.compile(_OWN + r"agent relay: received core\.ready", re.MULTILINE)
_END = re.compile(r"Vmm is stopping|panicked at")

_ERROR = "boot-error.json"
_BOOT_S = 60.0
"""Seconds. A boot without any output for this long has ended silently. An emulated boot takes 5 s."""

_TAIL = 64 * 1024


def cause(text: str) -> Cause | None:
    """The cause of a failed boot in a log or an error message; None if it contains no known one."""
    return next((meaning for words, meaning in _CAUSES if words in text), None)


def failure(name: str) -> Cause | None:
    """Why the newest boot of the sandbox ``name`` failed; None if it did not. It reads files, so use a thread."""
    folder = _log(name).parent
    message = _boot_error(folder / _ERROR)
    log = system_log(name)
    last = last_boot(log)
    # If the log is too long for its beginning to be read, the boot did not fail.
    if not message and (_READY.search(last) or not _BEGIN.search(log)):
        return None
    found = cause(message) or cause(last) or cause(tail(folder / "kernel.log"))
    if not message and not found:  # on a loaded machine the SDK gives up a boot before KVM has reported anything
        found = kvm.problem()
    return found or (message or "the microVM's process ended while it booted", f"see {folder}")


def under_way(name: str) -> bool:
    """Whether the sandbox ``name`` seems to be booting: its log has no end, and was written a moment ago."""
    last = last_boot(system_log(name))
    try:
        age_s = time.time() - _log(name).stat().st_mtime
    except OSError:
        return False
    return not (_READY.search(last) or _END.search(last) or cause(last)) and age_s < _BOOT_S


def guests_own(name: str) -> bool:
    """Whether the newest boot failed in the guest, which proves that the host can boot."""
    return bool(_boot_error(_log(name).with_name(_ERROR)))


def system_log(name: str) -> str:
    """The end of the runtime's log about the sandbox ``name``."""
    return tail(_log(name))


def last_boot(log: str) -> str:
    """The part of a system log that is about the newest boot."""
    return log[max((begun.start() for begun in _BEGIN.finditer(log)), default=0) :]


def runtime_messages(log: str) -> list[str]:
    """The runtime's own messages in a system log, line by line."""
    return _SAID.findall(log)


def _log(name: str) -> Path:
    return home() / "sandboxes" / name / "logs" / "runtime.log"


def _boot_error(path: Path) -> str:
    """The message in a file that exists only after a boot that failed in the guest; empty if there is none."""
    try:
        with path.open("rb") as file:
            text = file.read(_TAIL).decode(errors="replace")
    except OSError:
        return ""
    with contextlib.suppress(ValueError):
        data = json.loads(text)
        if isinstance(data, dict):
            return str(data.get("message") or text)
    return text


def tail(path: Path) -> str:
    """The end of a log; empty if there is none."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
