"""Sandboxes for the synchronous harnesses of OpenEnv: its ``SandboxBackend`` on top of this console.

    with sync.open_console() as console:
        factory = OpenCodeSessionFactory(..., sandbox_backend=SandboxBackend(console, image="node:20-slim"))

The contract is the protocol that OpenEnv's opencode_env declares. It is structural: nothing of OpenEnv is imported, as
its package on PyPI (openenv-core 0.3.0, wheel and sdist) does not contain it; only its repository does.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from msgspec import structs

from sandbox_console import library
from sandbox_console.errors import BackendError, ConsoleError, NotFound
from sandbox_console.model.log import Stream
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.sync import Console, RunningCommand
from sandbox_console.sync import SandboxHandle as Box

__all__ = ["BgJob", "ExecResult", "SandboxBackend", "SandboxHandle"]

_CANCELLED = (asyncio.CancelledError, concurrent.futures.CancelledError)
_IDLE = ("sleep", "2147483647")
_TELL_PID = 'echo "$$"; exec /bin/sh -c "$1"'


@dataclass(frozen=True)
class ExecResult:
    """How a command ended. A failure is a result, not an error; a timeout is exit code 124."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


class BgJob:
    """A command in the background. ``pid`` is its process id inside the sandbox. Its output is read and dropped."""

    def __init__(self, running: RunningCommand) -> None:
        self._running = running
        self._over = threading.Event()
        self._code = -1
        chunks = iter(running)
        self.pid = _first_number(chunks)
        threading.Thread(target=self._drain, name="sandbox-console-bg", daemon=True).start()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code. Raises TimeoutError after ``timeout`` seconds; the command goes on."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"process {self.pid} runs after {timeout:g} s")
        return self._code

    def kill(self) -> None:
        """End the command with everything that it started. Does nothing if it has ended."""
        self._running.__exit__(None, None, None)

    def _drain(self) -> None:
        result: library.ExecResult | None = None
        try:
            with suppress(ConsoleError, *_CANCELLED):  # the sandbox ended, or kill() was called
                result = self._running.result()
        finally:
            self._code = -1 if result is None or result.exit_code is None else result.exit_code
            with suppress(ConsoleError):
                self._running.__exit__(None, None, None)
            self._over.set()


class SandboxHandle:
    """One sandbox.

    What the policy forbids or the backend cannot do raises a :class:`sandbox_console.ConsoleError`.
    """

    def __init__(self, box: Box) -> None:
        self._box = box

    @property
    def sandbox_id(self) -> str:
        """The sandbox's full reference, as ``sandbox-console show`` takes it."""
        return str(self._box.ref)

    def exec(
        self, cmd: str, *, envs: Mapping[str, str] | None = None, cwd: str | None = None, timeout: float | None = 60
    ) -> ExecResult:
        """Run a script with /bin/sh. After ``timeout`` seconds it is ended with all that it started."""
        done = self._box.exec(cmd, env=envs, workdir=cwd, timeout_s=timeout)
        return ExecResult(-1 if done.exit_code is None else done.exit_code, done.text, done.error_text)

    def start_bg(self, cmd: str, *, envs: Mapping[str, str] | None = None, cwd: str | None = None) -> BgJob:
        """Start a script with /bin/sh in the background. Raises BackendError if it cannot be started."""
        running = self._box.stream(["/bin/sh", "-c", _TELL_PID, "sh", cmd], env=envs, workdir=cwd)
        running.__enter__()
        try:
            return BgJob(running)
        except BaseException:
            running.__exit__(None, None, None)
            raise

    def write_text(self, path: str, content: str) -> None:
        """Write a file. Missing parent folders are made."""
        self._box.write_file(path, content)

    def read_text(self, path: str) -> str:
        """A file's text. Raises NotFound."""
        return self._box.read_file(path).decode()

    def exists(self, path: str) -> bool:
        """Whether there is something at a path."""
        return self._box.exists(path)

    def kill(self) -> None:
        """End the sandbox and remove it. Does nothing if it is gone."""
        with suppress(NotFound):
            self._box.remove(force=True)


class SandboxBackend:
    """Makes sandboxes of one image on a console that is open for as long as they are used.

    ``backend`` is a name, or name/host; ``egress`` are the hosts that may be reached, such as the model's API.
    ``secrets`` are names of the configuration.
    """

    def __init__(
        self,
        console: Console,
        *,
        image: str,
        backend: str = "",
        egress: tuple[str, ...] = (),
        secrets: tuple[str, ...] = (),
        cpus: float | None = None,
        memory_mib: int | None = None,
    ) -> None:
        self._console, self._backend = console, backend
        self._like = SandboxSpec(
            "like", image=image, command=_IDLE, egress=egress, secrets=secrets, cpus=cpus, memory_mib=memory_mib
        )

    def create(
        self,
        *,
        timeout_s: float = 900,
        envs: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> SandboxHandle:
        """Make a sandbox and start it. It is ended after ``timeout_s`` seconds, even if this process has ended.

        ``metadata`` are its labels. Raises the errors of :meth:`sandbox_console.Console.create`.
        """
        spec = structs.replace(
            self._like, name=f"openenv-{uuid4().hex[:8]}", max_duration_s=timeout_s, env=dict(envs or {}),
            labels={key: str(value) for key, value in (metadata or {}).items()},
        )  # fmt: skip
        return SandboxHandle(self._console.create(spec, backend=self._backend).get())


def _first_number(chunks: Iterator[tuple[Stream, bytes]]) -> int:
    """The first line of stdout, which is the process id."""
    line, rest = b"", b""
    for stream, data in chunks:
        if stream is Stream.STDOUT:
            line += data
        else:
            rest += data
        if b"\n" in line:
            return int(line.split(b"\n", 1)[0])
    raise BackendError(f"it was not started: {rest.decode('utf-8', 'replace').strip()}")
