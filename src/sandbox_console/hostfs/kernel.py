"""Calls ``openat2(2)``, which Python lacks, or a slower equivalent if the kernel or a filter does not allow it."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import stat
import struct
import sys
from pathlib import Path

_OPENAT2 = 437
"""The number of the system call, the same on every architecture (linux/asm-generic/unistd.h)."""

NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_STRICT = _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH
_AT_EMPTY_PATH, _STATX_BTIME, _BTIME_AT = 0x1000, 0x800, 80
_AGAIN = 100
"""How often a rename elsewhere may disturb a walk, for which the kernel returns EAGAIN (openat2(2))."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_below(folder: int, name: str, flags: int, mode: int = 0, *, leave: bool = False) -> int:
    """Open the path ``name`` below a folder, without following links or ``..``.

    With ``leave``, mounts may be crossed. With O_PATH and O_NOFOLLOW the last component may be a link, which is itself
    opened. Raises OSError: ELOOP at a link, EXDEV at a mount or a way up.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    if _has_openat2():
        return _openat2(folder, name, flags, mode, _STRICT | (0 if leave else NO_XDEV))
    return open_stepwise(folder, name, flags, mode, leave=leave)


def open_stepwise(folder: int, name: str, flags: int, mode: int = 0, *, leave: bool = False) -> int:
    """Do the same as :func:`open_below`, with O_NOFOLLOW at each component."""
    parts = [part for part in name.split("/") if part not in ("", ".")] or ["."]
    if ".." in parts or name.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    at = os.dup(folder)
    mount = None if leave else mount_of(folder)
    try:
        for part in parts[:-1]:
            at = _next(at, part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, 0, mount)
        return _next(at, parts[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, mount, keep=True)
    finally:
        os.close(at)


def _next(at: int, part: str, flags: int, mode: int, mount: int | None, *, keep: bool = False) -> int:
    try:
        fd = os.open(part, flags, mode, dir_fd=at)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(part, dir_fd=at, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), part) from None
        raise
    if mount is not None and mount_of(fd) != mount:
        os.close(fd)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), part)
    if not keep:
        os.dup2(fd, at, inheritable=False)
        os.close(fd)
        return at
    return fd


def mount_of(fd: int) -> int:
    """The id of the mount that a descriptor is on (proc_pid_fdinfo(5))."""
    for line in Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines():
        if line.startswith("mnt_id:"):
            return int(line.split()[1])
    raise OSError(errno.ENOSYS, "the kernel does not report the mount of a descriptor")


def birth_of(fd: int) -> int:
    """When a file was created, in ns; 0 if unknown. It distinguishes files whose inode number was reused."""
    found = ctypes.create_string_buffer(256)  # struct statx, whose size is the same in every kernel (statx(2))
    try:
        failed = _libc().statx(ctypes.c_int(fd), b"", _AT_EMPTY_PATH, _STATX_BTIME, found)
    except AttributeError:  # glibc below 2.28
        return 0
    mask = int.from_bytes(found.raw[:4], sys.byteorder)
    if failed or not mask & _STATX_BTIME:
        return 0
    seconds, nanoseconds = struct.unpack_from("=qI", found.raw, _BTIME_AT)
    return int(seconds * 10**9 + nanoseconds)


@functools.cache
def _has_openat2() -> bool:
    try:
        os.close(_openat2(-100, "/", os.O_PATH | os.O_CLOEXEC, 0, 0))
    except OSError:
        return False
    return True


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(folder: int, name: str, flags: int, mode: int, resolve: int) -> int:
    how = _How(flags, mode if flags & (os.O_CREAT | os.O_TMPFILE) else 0, resolve)
    call = _libc().syscall
    path = os.fsencode(name)
    if b"\0" in path:
        raise ValueError("embedded null byte")
    for _ in range(_AGAIN):
        fd: int = call(
            ctypes.c_long(_OPENAT2), ctypes.c_int(folder), ctypes.c_char_p(path), ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )  # fmt: skip
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), name)
