"""What happened to a sandbox, appended to its folder by the supervisor and by consoles: one JSON object per line.

It contains no argument, variable or output: they may hold secrets.
"""

import json
import os
import time

NEW, OLD = "events.jsonl", "events.old.jsonl"
WITHHELD = "(name withheld)"
_SHORTEST_SECRET = 8  # bytes: the console refuses shorter ones
_USUAL = frozenset(f"{root}/{folder}" for root in ("", "/usr", "/usr/local") for folder in ("bin", "sbin"))
_MOST_BYTES = 256 * 1024  # for each of the two files: about 2,500 events


def note(folder: str, event: str, detail: str = "", **attributes: str) -> None:
    """Append an event. A full disk loses it, but the sandbox goes on."""
    line = json.dumps({"at": time.time(), "what": event, "detail": detail, "attributes": attributes}) + "\n"
    path = f"{folder}/{NEW}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode())
            full = os.fstat(fd).st_size > _MOST_BYTES
        finally:
            os.close(fd)
        if full:
            os.rename(path, f"{folder}/{OLD}")
    except OSError:
        pass


def program(word: str) -> str:
    """The base name of a command's first word, or `WITHHELD` if a secret may have been pasted there.

    The supervisor has no key for a hash and knows no values. A name is safe if it is shorter than any secret, and
    stands alone or in a usual folder of programs.
    """
    folder, name = os.path.split(word)
    safe = len(os.fsencode(name)) < _SHORTEST_SECRET and (not folder or folder in _USUAL)
    return name if safe else WITHHELD
