"""The context of a verb: its arguments, a way to open a console, and where data and messages go."""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar

from msgspec import Struct, field

from sandbox_console.cli import json_output
from sandbox_console.cli.formatting import table
from sandbox_console.cli.next_step import add_next_step
from sandbox_console.errors import ConsoleError, InvalidSpec
from sandbox_console.hostfs import own_files
from sandbox_console.model.text import clean
from sandbox_console.service import Consent, Console, open_console

ID_SHOWN = 12
"""The number of an id's characters that ``ls`` shows."""

T = TypeVar("T")
Opener = Callable[..., AbstractAsyncContextManager[Console]]


class OutputClosed(Exception):
    """The reader of our output is gone, as with ``| head``."""


class OutputFailed(ConsoleError):
    """Our output cannot be written, for example to a full disk."""


class Sink:
    """A stream of bytes. Each write is complete and immediate."""

    def __init__(self, file: BinaryIO, *, tty: bool) -> None:
        self._file = file
        self.tty = tty

    def pipe(self) -> int | None:
        """The file descriptor if it is a pipe, whose reader may go away."""
        try:
            fd = self._file.fileno()
            return fd if stat.S_ISFIFO(os.fstat(fd).st_mode) else None
        except OSError:
            return None

    def write(self, data: bytes) -> None:
        """Write all of it and flush. Raises OutputClosed."""
        left = memoryview(data)
        try:
            while left:
                # Unbuffered (PYTHONUNBUFFERED), a write may be short, and None if the pipe is non-blocking and full.
                written: int | None = self._file.write(left)
                left = left[written or 0 :]
                if written is None:
                    select.select([], [self._file], [])
            self._file.flush()
        except BrokenPipeError:
            raise OutputClosed from None
        except OSError as error:
            raise OutputFailed(f"the output cannot be written: {error.strerror}") from error

    async def stream(self, data: bytes) -> None:
        """Write large data off the event loop, so that a slow reader delays the guest and not the loop."""
        await asyncio.to_thread(self.write, data)

    def line(self, text: str) -> None:
        """Write a line of text."""
        self.write(text.encode("utf-8", "backslashreplace") + b"\n")


class Streams(Struct):
    """The file descriptor of standard input (None if there is nothing to read), standard output and standard error."""

    out: Sink
    err: Sink
    stdin: int | None = None

    @classmethod
    def standard(cls) -> Streams:
        """The streams of this process."""
        try:
            stdin: int | None = sys.stdin.fileno()
        except (AttributeError, OSError, ValueError):  # none, not a file, or closed
            stdin = None
        return cls(_sink(sys.stdout), _sink(sys.stderr), stdin)


def _sink(file: TextIO | None) -> Sink:
    """A sink for a stream. If it was closed at the start (``>&-``), Python has None for it, and output goes nowhere."""
    if file is None:
        return Sink(open(os.devnull, "wb"), tty=False)  # noqa: PTH123 - for as long as the process lives
    return Sink(file.buffer, tty=file.isatty())


class Context(Struct):
    """One run of a verb."""

    args: argparse.Namespace
    streams: Streams
    opener: Opener = open_console
    now: Callable[[], float] = time.time
    failures: list[int] = field(default_factory=list)

    @property
    def json(self) -> bool:
        """Whether data and errors are JSON lines."""
        return bool(self.args.json)

    @property
    def backend(self) -> tuple[str, str]:
        """The backend and host of ``--backend``; each is empty if not given."""
        name, _, host = self.args.backend.partition("/")
        return name, host

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Console]:
        """A console as the common options request it."""
        file = Path(self.args.config) if self.args.config else None
        async with self.opener(
            config_file=file,
            read_only=self.args.read_only,
            only_backend=self.args.backend,
            **({"only_hosts": self.args.on_hosts} if self.args.on_hosts else {}),
        ) as console:
            console.audit_log.tell_wait = self.say
            try:
                yield console
            finally:
                for text in own_files.told():
                    self.say(text)

    def consent(self, id: str = "") -> Consent:
        """What the caller has agreed to for the sandbox with this id. ``--confirm`` takes the id as ``ls`` shows it."""
        given = self.args.confirm
        meant = any(id.startswith(word) and len(word) >= ID_SHOWN for word in given)
        return Consent(self.args.yes, id if id in given or meant else given[0] if given else "")

    def record(self, value: Mapping[str, Any]) -> None:
        """Print one object of data."""
        self.streams.out.line(json_output.line(value))

    def text(self, text: str) -> None:
        """Print a line of data for a person, cleaned."""
        self.streams.out.line(clean(text))

    def table(self, head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
        """Print a table."""
        for row in table(head, rows):
            self.streams.out.line(row)

    def listing(
        self, head: tuple[str, ...], items: Iterable[T], record: Callable[[T], Mapping[str, Any]],
        cells: Callable[[T], tuple[str, ...]],
    ) -> None:  # fmt: skip
        """Print a table, or with ``--json`` a record for each item."""
        if self.json:
            for item in items:
                self.record(record(item))
        else:
            self.table(head, map(cells, items))

    def say(self, text: str) -> None:
        """Print a message on standard error, cleaned. With ``--json``, which keeps that for errors, print nothing."""
        if not self.json:
            self.streams.err.line(clean(text))

    def fail(self, error: ConsoleError, name: str = "") -> int:
        """Report an error. Returns its exit code; the first one becomes the verb's."""
        add_next_step(error, self.args)
        print_error(self.streams.err, error, as_json=self.json, name=name)
        self.failures.append(error.exit_code)
        return error.exit_code

    @property
    def code(self) -> int:
        """The exit code, which is that of the first failure."""
        return self.failures[0] if self.failures else 0


def print_error(err: Sink, error: ConsoleError, *, as_json: bool, name: str = "") -> None:
    """Print an error on standard error: ``error: ...`` and ``hint: ...``, or one JSON object."""
    if as_json:
        err.line(json_output.line(error.as_dict() | ({"name": name} if name else {})))
        return
    if isinstance(error, InvalidSpec):
        for field_name, problem in error.problems.items():
            err.line(f"error: {clean(f'{field_name}: {problem}')}")
    else:
        err.line(f"error: {clean(f'{name}: {error.message}' if name else error.message)}")
    if error.hint:
        err.line(f"hint: {clean(error.hint)}")


def colours(sink: Sink) -> bool:
    """Whether colour may be used on a stream."""
    return sink.tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
