"""The report of an internal error: where it happened, without messages or values, which may be a guest's or secret."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from textual.worker import WorkerFailed

from sandbox_console.errors import ConsoleError


def crash_report(error: Exception, folder: Path | None) -> str:
    """Write the report into a new file, and return what the user is told, which names the file.

    Without a folder, the file is in the system's temporary folder.
    """
    cause = error.error if isinstance(error, WorkerFailed) else error
    cause_text = cause.message if isinstance(cause, ConsoleError) else type(cause).__name__
    line = f"sandbox-console stopped on an internal error: {cause_text}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="sandbox-console-crash-", suffix=".log", dir=folder, delete=False, encoding="utf-8"
        ) as file:
            file.writelines(f"{text}\n" for text in _frames(cause))
    except OSError as problem:
        return f"{line}\nIts report could not be written: {problem.strerror}"
    return f"{line}\nWhere it happened, without any values: {file.name}"


def _frames(error: BaseException) -> Iterator[str]:
    """Yield the frames of an error and its causes: types, files, lines and functions."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield f"{type(at).__module__}.{type(at).__qualname__}"
        for frame in traceback.extract_tb(at.__traceback__):
            yield f"  {frame.filename}:{frame.lineno} {frame.name}"
        at = at.__cause__ or at.__context__
