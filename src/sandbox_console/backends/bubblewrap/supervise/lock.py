"""The lock in a sandbox's folder: its supervisor holds it for as long as it lives."""

import fcntl
import json
import os
import time


def take() -> bool:
    """Take it for this process's life; False where another supervisor has the sandbox running."""
    fd = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for turn in range(100):  # a console that looks whether it is held, holds it for an instant
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
