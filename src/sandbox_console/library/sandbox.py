"""A sandbox as programs use it."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

from sandbox_console.errors import TimedOut
from sandbox_console.library.async_resource import Held
from sandbox_console.library.command import ExecResult, RunningCommand, ended, run, words
from sandbox_console.library.exec_input import Input, Source
from sandbox_console.library.exec_output import Files, Output
from sandbox_console.library.files import MAX_BYTES, GuestFiles
from sandbox_console.model import ports
from sandbox_console.model.action import Action, Exec, Kill, OpenShell, Pause, Remove, Restart, Resume, Start, Stop
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.ports import PublishedPort
from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef, Status
from sandbox_console.service import Consent, Console, ExecIO, Operation, ShellSession

_FIRST_LOOK_S = 0.02
_LOOK_S = 0.5
_PORT = "port "


class SandboxHandle:
    """A sandbox by its ref. ``name`` is its name when the handle was made.

    The handle owns nothing: dropping it leaves the sandbox as it is. Every method that changes something raises Denied
    if the policy forbids it, NotFound if the sandbox is gone, BackendUnreachable and AuditUnavailable.
    """

    def __init__(self, console: Console, ref: SandboxRef, name: str, consent: Consent) -> None:
        self.ref = ref
        self.name = name
        self._console, self._consent = console, consent
        self._files = GuestFiles(console, ref, consent)

    def __repr__(self) -> str:
        return f"SandboxHandle({str(self.ref)!r}, name={self.name!r})"

    async def inspect(self) -> Sandbox:
        """The sandbox as it is now. Raises NotFound."""
        return await self._console.inspect(self.ref)

    # Commands

    async def exec(
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
        """Run a command beside the main process, to its end. A list is run as it is, text by ``/bin/sh -c``.

        ``stdin`` is bytes, text, a path, an open file, or an iterator or async iterator of bytes or text. ``stdout``
        and ``stderr`` are paths or files for all of the output; without them the result keeps the first MiB of each.
        After ``timeout_s`` seconds, or if this is cancelled, the command is ended with all that it started.

        Raises what ``stdin`` raises, after ending the command; Conflict if the sandbox is not running; SandboxEnded if
        it ends meanwhile.
        """
        request = self._request(command, env, workdir, user, timeout_s)
        ask = self._console.ground
        return await run(self._exec, request, Source(stdin, ask), Files(stdout, stderr, ask))

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
        """Run a command and read its output as it runs.

        Use ``async with box.stream("make") as running``, then ``async for``.
        """
        return RunningCommand(
            self._exec, self._request(command, env, workdir, user, timeout_s), Source(stdin, self._console.ground)
        )

    def _request(
        self, command: str | Sequence[str], env: Mapping[str, str] | None, workdir: str | None, user: str | None,
        timeout_s: float | None,
    ) -> Exec:  # fmt: skip
        return Exec(self.ref, words(command), dict(env or {}), workdir, user, timeout_s)

    def _exec(self, request: Exec, io: ExecIO) -> Operation:
        return self._console.perform(request, consent=self._consent, io=io)

    def shell(
        self, *, shell: str | None = None, user: str | None = None, cols: int = 80, rows: int = 24,
        record: bool = False, keep: bool = False,
    ) -> Held[ShellSession]:  # fmt: skip
        """Open a shell on a PTY. ``async with`` closes it; after ``await``, close it yourself.

        With ``keep`` it goes on after that, under the session's name ``kept``: an `OpenShell` with ``attach`` comes
        back to it. Raises Unsupported if the backend cannot keep it.
        """
        request = OpenShell(self.ref, shell, user, cols, rows, record=record, keep=keep)

        async def opened() -> ShellSession:
            return await self._console.shell(request, consent=self._consent)

        return Held(opened, ShellSession.close)

    # Files

    async def read_file(self, path: str, *, max_bytes: int = MAX_BYTES) -> bytes:
        """The contents of a file. Raises NotFound; Conflict if it is not a file; UsageError if it is too large."""
        return await self._files.read(path, max_bytes)

    async def write_file(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        """Write a whole file, replacing an existing one. Missing parent folders are made. Raises Conflict."""
        await self._files.write(path, data.encode() if isinstance(data, str) else bytes(data), mode)

    async def mkdir(self, path: str, *, mode: int = 0o755) -> None:
        """Make a folder and its parents. Does nothing if it exists. Raises Conflict if a file is in the way."""
        await self._files.mkdir(path, mode)

    async def exists(self, path: str) -> bool:
        """Whether there is something at a path. Raises NotFound if the sandbox itself is gone."""
        return await self._files.exists(path)

    # Output and ports

    async def logs(
        self, *, follow: bool = False, tail: int | None = None, since: float | None = None, until: float | None = None
    ) -> AsyncIterator[LogItem]:
        """The output of the main process, with known secrets masked.

        ``since`` and ``until`` are seconds since the epoch.
        """
        query = LogQuery(follow, tail, since, until)
        async with aclosing(self._console.logs(self.ref, query)) as batches:  # type: ignore[type-var]
            async for batch in batches:
                for item in batch:
                    yield item

    async def ports(self) -> Sequence[PublishedPort]:
        """The published ports, with the address on this host for each; empty while the sandbox is not running."""
        published_ports: list[PublishedPort] = []
        for fact in (await self.inspect()).effective:
            port, _, protocol = fact.field.removeprefix(_PORT).partition("/")
            if not fact.field.startswith(_PORT) or protocol not in ("", "tcp"):
                continue
            places = [place.strip() for place in fact.value.split(",") if place.strip()[-1:].isdecimal()]
            published_ports += [ports.parse(f"{place}:{port}") for place in places]
        return published_ports

    # Lifecycle

    async def start(self) -> None:
        """Start the sandbox. Does nothing if it is running."""
        await self._done(Start(self.ref))

    async def stop(self, *, grace_s: float = 10.0) -> None:
        """Send SIGTERM to the main process, and SIGKILL to every process after ``grace_s`` seconds."""
        await self._done(Stop(self.ref, grace_s))

    async def restart(self, *, grace_s: float = 10.0) -> None:
        """Stop the sandbox, then start it."""
        await self._done(Restart(self.ref, grace_s))

    async def kill(self, signal: str = "SIGKILL") -> None:
        """Send a signal to the main process. SIGKILL ends the whole sandbox."""
        await self._done(Kill(self.ref, signal))

    async def pause(self) -> None:
        """Freeze every process. Raises Unsupported if the backend cannot."""
        await self._done(Pause(self.ref))

    async def resume(self) -> None:
        """Thaw the processes that ``pause`` froze."""
        await self._done(Resume(self.ref))

    async def remove(self, *, force: bool = False) -> None:
        """Remove the sandbox and what the backend stores for it.

        With ``force`` it may be running. Raises Conflict, NotFound.
        """
        await self._done(Remove(self.ref, force))

    async def wait(self, *, timeout_s: float | None = None) -> Exit:
        """Wait until the sandbox has ended, and return how.

        Raises TimedOut after ``timeout_s`` seconds, NotFound if the sandbox is gone.
        """
        sandbox, pause = await self.inspect(), _FIRST_LOOK_S
        try:
            async with asyncio.timeout(timeout_s):
                while sandbox.status.live or sandbox.status in (Status.CREATED, Status.UNKNOWN):
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _LOOK_S)
                    sandbox = await self.inspect()
        except TimeoutError:
            hint = f"sandbox-console logs {shlex.quote(self.name)}"
            raise TimedOut(f"{self.name} is {sandbox.status} after {timeout_s:g} s", hint=hint) from None
        return sandbox.exit or Exit()

    async def _done(self, action: Action) -> None:
        await ended(self._console.perform(action, consent=self._consent))
