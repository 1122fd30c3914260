"""The supervisor's files in its sandbox's folder: a lock held for as long as it lives, and the status.

The status is written in place into blocks that the file already has, so that a full disk cannot delay a stop.
"""

import ctypes
import fcntl
import json
import os
import time

_BLOCK = 4096
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # linux/fs.h; Linux 3.15
_libc = ctypes.CDLL(None, use_errno=True)


def take_lock() -> bool:
    """Lock the sandbox's folder until this process ends; False if another supervisor runs it."""
    fd = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for turn in range(100):  # a console that checks the lock holds it for an instant
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if turn > 5 and _runs():
                return False
            time.sleep(0.01)
    return False


def _runs() -> bool:
    """Whether another supervisor has this sandbox running."""
    try:
        with open("status.json") as file:
            return bool(json.load(file)["status"] in ("running", "paused"))
    except FileNotFoundError:
        return False


def write_status(name: str, spare: str, status: dict[str, object]) -> None:
    """Replace the file ``name`` by ``status`` atomically, through ``spare``, which then has the old content.

    Raises OSError if it needs one more block and the disk is full.
    """
    text = json.dumps(status).encode()
    fd = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        size = max(_BLOCK, os.fstat(fd).st_size, -(-len(text) // _BLOCK) * _BLOCK)
        os.pwrite(fd, text.ljust(size), 0)  # JSON ignores spaces
        os.ftruncate(fd, size)
    finally:
        os.close(fd)
    names = os.fsencode(spare), os.fsencode(name)
    if _libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) < 0:
        os.rename(spare, name)  # the first time, or on a file system that cannot exchange files
        with open(spare, "wb") as file:
            file.write(bytes(size))
