"""Reads the console's own small files, which somebody else may have replaced, and sets aside what cannot be used."""

from __future__ import annotations

import errno
import os
from pathlib import Path

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
_MOST_KEPT = 100
"""Numbers that are tried for the name of a file that is set aside."""


def set_aside(path: Path, ending: str) -> Path:
    """Rename what is there to NAME.ENDING, or NAME.ENDING-2 and so on, and return the new path.

    Nothing is replaced. A link is renamed, not what it leads to. Raises OSError; FileNotFoundError if nothing is there.
    """
    for number in range(1, _MOST_KEPT + 1):
        kept = path.with_name(f"{path.name}.{ending}" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(kept):
            path.rename(kept)
            return kept
    raise OSError(errno.EEXIST, f"{_MOST_KEPT} files of this name were set aside before", str(path))
