"""Finds other users of this machine who could change a file, directly or through a folder above it."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

_OVERFLOW = Path("/proc/sys/kernel/overflowuid")
_WHOLE = ["0", "0", "4294967295"]
"""The uid_map of a process outside of any user namespace (user_namespaces(7))."""


def another_hand(path: Path) -> str:
    """Which other user could change what is at a path, in words; empty if nobody could or if nothing is there.

    It checks the file and the folders above it, both by the given name and with its links followed; for a path in the
    user's home, only the folders below the home. A world-writable folder is no danger if only owners may rename (sticky
    bit).
    """
    for whole in dict.fromkeys((path.absolute(), path.resolve())):
        home = _home(whole)
        for at in (whole, *whole.parents):
            if why := _why(at, whole):
                return why
            if at == home:
                break
    return ""


def _home(path: Path) -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return next((file_path for file_path in (home, home.resolve()) if path.is_relative_to(file_path)), None)


def _why(at: Path, whole: Path) -> str:
    try:
        st = at.lstat()
    except OSError:  # missing or not accessible: then it is not read either
        return ""
    if st.st_uid not in _trusted():
        return f"{at} belongs to {_name(st.st_uid)}"
    if stat.S_ISLNK(st.st_mode) or stat.S_ISFIFO(st.st_mode) or stat.S_ISCHR(st.st_mode):
        return ""  # the operator's own <(...), or /dev/null: writing does not change what is read
    if st.st_mode & stat.S_ISVTX and stat.S_ISDIR(st.st_mode) and at != whole:
        return ""
    if st.st_mode & stat.S_IWOTH:
        return f"every user may write {at} (mode {stat.S_IMODE(st.st_mode):04o})"
    if st.st_mode & stat.S_IWGRP and not _private(st.st_gid):
        return f"others of its group may write {at} (mode {stat.S_IMODE(st.st_mode):04o})"
    return ""


def _trusted() -> set[int]:
    """The trusted users: root, this user, the one behind sudo, and in a user namespace "nobody" (the outer root)."""
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0 and (before := os.environ.get("SUDO_UID", "")).isdigit():
        trusted.add(int(before))
    try:
        if Path("/proc/self/uid_map").read_text().split() != _WHOLE:
            trusted.add(int(_OVERFLOW.read_text()))
    except (OSError, ValueError):
        return trusted
    return trusted


def _private(gid: int) -> bool:
    """Whether a group has a single user. Distributions give each user such a group, with a umask of 002."""
    try:
        group = grp.getgrgid(gid)
        users = {pwd.getpwuid(uid).pw_name for uid in _trusted()}
    except KeyError:
        return False
    return group.gr_name in users and not set(group.gr_mem) - users


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
