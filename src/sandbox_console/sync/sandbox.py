"""A sandbox, its commands and its shells without asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Self, TypeVar

from sandbox_console import library, service
from sandbox_console.library.command import ExecResult
from sandbox_console.library.exec_input import Input
from sandbox_console.library.exec_output import Output
from sandbox_console.library.files import MAX_BYTES
from sandbox_console.model.log import LogItem, Stream
from sandbox_console.model.ports import PublishedPort
from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef
from sandbox_console.sync.loop import Loop
from sandbox_console.sync.resource import Held

T = TypeVar("T")


class SandboxHandle:
    """A sandbox by its ref: :class:`sandbox_console.SandboxHandle` without asyncio."""

    def __init__(self, loop: Loop, inner: library.SandboxHandle) -> None:
        self._loop, self._inner = loop, inner

    @property
    def ref(self) -> SandboxRef:
        """The sandbox's reference."""
        return self._inner.ref

    @property
    def name(self) -> str:
        """The sandbox's name when the handle was made."""
        return self._inner.name

    def __repr__(self) -> str:
        return repr(self._inner)

    def inspect(self) -> Sandbox:
        """The sandbox as it is now. Raises NotFound."""
        return self._loop.run(self._inner.inspect)

    def exec(
        self,
        command: str | Sequence[str],
        *,
        stdin: Input = None,
        stdout: Output = None,
        stderr: Output = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
    ) -> ExecResult:
        """Run a command to its end. See :meth:`sandbox_console.SandboxHandle.exec`."""
        return self._loop.run(
            lambda: self._inner.exec(
                command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, workdir=workdir, user=user,
                timeout_s=timeout_s,
            )
        )  # fmt: skip

    def stream(
        self,
        command: str | Sequence[str],
        *,
        stdin: Input = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
    ) -> RunningCommand:
        """Run a command and read its output as it runs: ``with box.stream("make") as running``, then ``for``."""

        async def made() -> library.RunningCommand:
            return self._inner.stream(
                command, stdin=stdin, env=env, workdir=workdir, user=user, timeout_s=timeout_s
            )  # its queue belongs to the loop

        return RunningCommand(self._loop, self._loop.run(made))

    def shell(
        self, *, shell: str | None = None, user: str | None = None, cols: int = 80, rows: int = 24,
        record: bool = False, keep: bool = False,
    ) -> Held[ShellSession]:  # fmt: skip
        """Open a shell on a PTY. ``with`` closes it; after ``get()``, close it yourself. ``keep``: it goes on then."""
        inner = self._inner.shell(shell=shell, user=user, cols=cols, rows=rows, record=record, keep=keep)
        return Held(self._loop, inner, lambda session: ShellSession(self._loop, session))

    def read_file(self, path: str, *, max_bytes: int = MAX_BYTES) -> bytes:
        """The contents of a file. Raises NotFound; Conflict if it is not a file; UsageError if it is too large."""
        return self._loop.run(lambda: self._inner.read_file(path, max_bytes=max_bytes))

    def write_file(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        """Write a whole file, replacing an existing one. Missing parent folders are made. Raises Conflict."""
        self._loop.run(lambda: self._inner.write_file(path, data, mode=mode))

    def mkdir(self, path: str, *, mode: int = 0o755) -> None:
        """Make a folder and its parents. Does nothing if it exists. Raises Conflict if a file is in the way."""
        self._loop.run(lambda: self._inner.mkdir(path, mode=mode))

    def exists(self, path: str) -> bool:
        """Whether there is something at a path. Raises NotFound if the sandbox itself is gone."""
        return self._loop.run(lambda: self._inner.exists(path))

    def logs(
        self, *, follow: bool = False, tail: int | None = None, since: float | None = None, until: float | None = None
    ) -> Iterator[LogItem]:
        """The output of the main process, with known secrets masked.

        ``since`` and ``until`` are seconds since the epoch.
        """
        return each(self._loop, self._inner.logs(follow=follow, tail=tail, since=since, until=until))

    def ports(self) -> Sequence[PublishedPort]:
        """The published ports, with the address on this host for each; empty while the sandbox is not running."""
        return self._loop.run(self._inner.ports)

    def start(self) -> None:
        """Start the sandbox. Does nothing if it is running."""
        self._loop.run(self._inner.start)

    def stop(self, *, grace_s: float = 10.0) -> None:
        """Send SIGTERM to the main process, and SIGKILL to every process after ``grace_s`` seconds."""
        self._loop.run(lambda: self._inner.stop(grace_s=grace_s))

    def restart(self, *, grace_s: float = 10.0) -> None:
        """Stop the sandbox, then start it."""
        self._loop.run(lambda: self._inner.restart(grace_s=grace_s))

    def kill(self, signal: str = "SIGKILL") -> None:
        """Send a signal to the main process. SIGKILL ends the whole sandbox."""
        self._loop.run(lambda: self._inner.kill(signal))

    def pause(self) -> None:
        """Freeze every process. Raises Unsupported if the backend cannot."""
        self._loop.run(self._inner.pause)

    def resume(self) -> None:
        """Thaw the processes that ``pause`` froze."""
        self._loop.run(self._inner.resume)

    def remove(self, *, force: bool = False) -> None:
        """Remove the sandbox and what the backend stores for it.

        With ``force`` it may be running. Raises Conflict, NotFound.
        """
        self._loop.run(lambda: self._inner.remove(force=force))

    def wait(self, *, timeout_s: float | None = None) -> Exit:
        """Wait until the sandbox has ended, and return how.

        Raises TimedOut after ``timeout_s`` seconds, NotFound if the sandbox is gone.
        """
        return self._loop.run(lambda: self._inner.wait(timeout_s=timeout_s))


class RunningCommand:
    """A command that is read while it runs: ``for stream, data in running``, inside ``with``."""

    def __init__(self, loop: Loop, inner: library.RunningCommand) -> None:
        self._loop, self._inner = loop, inner

    def __enter__(self) -> Self:
        self._loop.run(self._inner.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._inner.__aexit__)

    def __iter__(self) -> Iterator[tuple[Stream, bytes]]:
        return each(self._loop, aiter(self._inner))

    def result(self) -> ExecResult:
        """Wait for the command's end, and return how it ended. Unread output is dropped, so that it can end."""
        return self._loop.run(self._inner.result)


class ShellSession:
    """A shell on a PTY."""

    def __init__(self, loop: Loop, inner: service.ShellSession) -> None:
        self._loop, self._inner = loop, inner

    def read(self) -> bytes:
        """The next bytes, with known secrets masked; empty at the end."""
        return self._loop.run(self._inner.read)

    def write(self, data: bytes) -> None:
        """Send bytes as typed input."""
        self._loop.run(lambda: self._inner.write(data))

    def resize(self, cols: int, rows: int) -> None:
        """Set the size of the PTY."""
        self._loop.run(lambda: self._inner.resize(cols, rows))

    def wait(self) -> Exit:
        """Wait until the shell has ended, and return how."""
        return self._loop.run(self._inner.wait)

    def close(self) -> None:
        """End the shell and all that it started, and record its end. Safe to call twice."""
        self._loop.run(self._inner.close)


def each(loop: Loop, items: AsyncIterator[T]) -> Iterator[T]:
    """An asynchronous iterator as a plain one. Leaving the loop early ends it."""
    try:
        while True:
            try:
                item = loop.run(lambda: anext(items))
            except StopAsyncIteration:
                return
            yield item
    finally:
        close = getattr(items, "aclose", None)
        if close is not None:
            with suppress(Exception):  # collected at interpreter exit, when nothing is left to close
                loop.run(close)
