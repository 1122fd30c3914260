"""Sandboxes for agents of a2a_pack: ``ctx.sandbox``, with this console's policy, egress, secrets and audit log.

    async with open_console() as console:
        await agent.local_invoke("build", sandbox=SandboxClient(console))

The contract is ``a2a_pack.sandbox`` (PyPI a2a-pack 0.1.116). Needs the extra ``a2a``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from sandbox_console.errors import (
    AuditUnavailable,
    BackendUnreachable,
    ConfigError,
    Denied,
    InvalidSpec,
    NotFound,
    UsageError,
)
from sandbox_console.library import Console, ExecResult
from sandbox_console.library import SandboxHandle as Box
from sandbox_console.model import spec as ours
from sandbox_console.model.log import LogRecord
from sandbox_console.model.sandbox import HealthState, Sandbox

try:
    from a2a_pack import sandbox as contract
    from a2a_pack.sandbox import SandboxUnavailable
except ImportError as error:
    raise ImportError(
        f"sandbox_console.adapters.a2a needs a2a-pack ({error}): pip install 'sandbox-console-tui[a2a]'"
    ) from error

__all__ = ["SandboxClient", "SandboxHandle", "SandboxUnavailable"]

OWNER = "a2a.owner"
"""The label that names a sandbox's owner. A client sees and removes only its own sandboxes."""

_BUCKET = re.compile(r"user-[0-9]+-files|agent-[A-Za-z0-9_.-]{1,96}")
_IDLE = ("sleep", "2147483647")
_NOT_FOUND = 127
_NO_RUNTIME = (BackendUnreachable, ConfigError, AuditUnavailable)


class SandboxHandle(contract.SandboxHandle):  # type: ignore[misc] # a2a_pack has no types
    """A sandbox of the client that made it."""

    def __init__(self, box: Box, timeout_s: float | None) -> None:
        self.name = box.name
        self._box, self._timeout_s = box, timeout_s

    async def exec(
        self, cmd: str, args: Sequence[str] | None = None, *, timeout: float | None = None
    ) -> contract.ExecResult:
        """Run a program. After ``timeout`` seconds it is ended with all that it started; the exit code is then 124.

        In a sandbox that has no ``python``, ``python3`` is run instead.
        """
        words = [cmd, *(args or ())]
        done = await self._run(words, timeout)
        if done.exit_code == _NOT_FOUND and cmd == "python":
            done = await self._run(["python3", *words[1:]], timeout)
        return _result(done)

    async def shell(self, script: str, *, timeout: float | None = None) -> contract.ExecResult:
        """Run a script with /bin/sh, with the same time limit."""
        return _result(await self._run(script, timeout))

    async def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after two seconds. Does nothing if the sandbox is not running or is gone."""
        with suppress(NotFound):
            await self._box.stop(grace_s=2)

    async def kill(self) -> None:
        """Send SIGKILL to every process. Does nothing if the sandbox is not running or is gone."""
        with suppress(NotFound):
            await self._box.stop(grace_s=0)

    async def logs(self, *, tail: int | None = None) -> str:
        """The output of the main process, with known secrets masked."""
        found = [one.data async for one in self._box.logs(tail=tail) if isinstance(one, LogRecord)]
        return b"".join(found).decode("utf-8", "replace")

    async def _run(self, command: str | list[str], timeout: float | None) -> ExecResult:
        return await self._box.exec(command, timeout_s=timeout or self._timeout_s)


class SandboxClient(contract.SandboxClient):  # type: ignore[misc] # a2a_pack has no types
    """The ``ctx.sandbox`` of an agent: the sandboxes of one owner, on a console that stays open meanwhile.

    ``backend`` is a name, or name/host. ``images`` maps patterns of the agent's images to the backend's images, such as
    ``{"python:*": "host"}``. The first match counts, and an image without a match is refused. Without ``images``,
    images are used as named. ``workspaces`` is a folder with a folder for each of a2a's buckets. ``max_duration_s``
    ends sandboxes that a dead agent left behind, ``timeout_s`` a command without a time limit of its own.
    """

    def __init__(
        self,
        console: Console,
        *,
        owner: str = "local",
        backend: str = "",
        images: Mapping[str, str] | None = None,
        workspaces: Path | None = None,
        max_duration_s: float | None = None,
        timeout_s: float | None = 1200.0,
    ) -> None:
        self._console, self._owner, self._backend = console, owner, backend
        self._images, self._workspaces = images, workspaces
        self._max_duration_s, self._timeout_s = max_duration_s, timeout_s

    async def create(self, spec: contract.SandboxSpec) -> SandboxHandle:
        """Make a sandbox and start it.

        Raises SandboxUnavailable if no backend answers; Denied, InvalidSpec, Conflict and the console's other errors,
        as :meth:`sandbox_console.Console.create` does.
        """
        try:
            box = await self._console.create(self._translated(spec), backend=self._backend)
        except _NO_RUNTIME as error:
            raise SandboxUnavailable(_words(error)) from error
        return SandboxHandle(box, self._timeout_s)

    async def get(self, name: str) -> SandboxHandle:
        """A sandbox of this owner. Raises NotFound; SandboxUnavailable if a backend does not answer."""
        return SandboxHandle(await self._found(name), self._timeout_s)

    async def list(self) -> list[str]:
        """The names of this owner's sandboxes. Raises SandboxUnavailable if a backend does not answer."""
        rows, silent = await self._rows()
        if silent is not None:
            raise silent
        return sorted(row.name for row in rows)

    async def remove(self, name: str) -> None:
        """Remove a sandbox of this owner, running or not. Does nothing if there is none. Raises SandboxUnavailable."""
        with suppress(NotFound):
            await (await self._found(name)).remove(force=True)

    async def _found(self, name: str) -> Box:
        rows, silent = await self._rows()
        for row in rows:
            if row.name == name and row.managed:
                return await self._console.sandbox(row.ref)
        if silent is not None:  # it may be there
            raise silent
        raise NotFound(f"{self._owner} has no sandbox {name!r}", hint="await client.list()")

    async def _rows(self) -> tuple[Sequence[Sandbox], SandboxUnavailable | None]:
        """The owner's sandboxes, and the error of a backend that should answer and does not."""
        try:
            rows, healths = await self._console.list(self._backend.partition("/")[0])
        except _NO_RUNTIME as error:
            raise SandboxUnavailable(_words(error)) from error
        silent = next((one for one in healths if one.state == HealthState.UNREACHABLE), None)
        own = [row for row in rows if row.labels.get(OWNER) == self._owner]
        return own, silent and SandboxUnavailable(f"{silent.backend} does not answer: {silent.reason}")

    def _translated(self, spec: contract.SandboxSpec) -> ours.SandboxSpec:
        return ours.SandboxSpec(
            spec.name,
            image=self._image(spec.image),
            command=_IDLE,
            cpus=float(spec.cpus),
            memory_mib=spec.memory_mib,
            workspace=self._workspace(spec.workspace),
            secrets=tuple(spec.secrets),
            egress=tuple(spec.egress),
            labels={**spec.labels, OWNER: self._owner},
            max_duration_s=self._max_duration_s,
        )

    def _image(self, requested: str) -> str:
        if self._images is None:
            return requested
        for pattern, image in self._images.items():
            if fnmatchcase(requested, pattern):
                return image
        raise Denied(f"the image {requested!r} is not among those of this client", rule="a2a.images")

    def _workspace(self, bucket: str | None) -> str | None:
        if bucket is None:
            return None
        if self._workspaces is None:
            raise UsageError(f"there is no place for the workspace {bucket!r}", hint="SandboxClient(workspaces=FOLDER)")
        if not _BUCKET.fullmatch(bucket) or bucket.endswith(".."):
            raise InvalidSpec({"workspace": f"{bucket!r} is no bucket: user-NUMBER-files, or agent-NAME"})
        folder = self._workspaces / bucket
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(folder)


def _result(done: ExecResult) -> contract.ExecResult:
    return contract.ExecResult(done.text, done.error_text, done.exit_code or 0, done.truncated)


def _words(error: Exception) -> str:
    hint = getattr(error, "hint", "")
    return f"{error}; {hint}" if hint else str(error)
