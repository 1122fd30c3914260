"""How a sandbox's main command ended."""

import os
import signal


def result(status: int, exact: int | None, asked: int | None, killed: bool | None, reason: str) -> dict[str, object]:
    """From bwrap's wait status and, where the kernel tells it, the command's own.

    ``asked`` is the signal with which the console ended it; ``killed`` whether the kernel killed a process of it for
    want of memory, None where it does not tell.
    """
    monitor = os.waitstatus_to_exitcode(status)
    code = monitor if exact is None else os.waitstatus_to_exitcode(exact)
    number = -code if code < 0 else None
    if exact is None and code - 128 in signal.valid_signals():
        number = code - 128
    if asked is not None and monitor == -signal.SIGKILL:
        number = signal.SIGKILL
    oom = None if killed is None else killed and number in (None, signal.SIGKILL)
    return {
        "code": 128 + number if number else code,
        "signal": int(number) if number else None,
        "oom": oom,
        "reason": reason,
    }
