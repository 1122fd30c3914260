"""A microsandbox home for a test, in a process whose SDK may have seen another: it keeps the first one it saw."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def at(folder: Path) -> Iterator[None]:
    """MSB_HOME is ``folder``, for the SDK too."""
    before = os.environ.get("MSB_HOME")
    os.environ["MSB_HOME"] = str(folder)
    _forget()
    try:
        yield
    finally:
        if before is None:
            del os.environ["MSB_HOME"]
        else:
            os.environ["MSB_HOME"] = before
        _forget()


def _forget() -> None:
    import microsandbox

    microsandbox.set_default_backend(microsandbox.BackendKind.LOCAL)
