"""The console without asyncio."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox_console import library
from sandbox_console.library.command import ended
from sandbox_console.model.action import Action, OpenShell
from sandbox_console.model.audit import AuditEntry, AuditQuery
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef
from sandbox_console.model.secret import Secret
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import ActionResult, Backend, Consent
from sandbox_console.sync.loop import Loop, current
from sandbox_console.sync.resource import Held
from sandbox_console.sync.sandbox import SandboxHandle, ShellSession, each


@contextmanager
def open_console(
    *,
    config_file: str | Path | None = None,
    backend: str = "",
    hosts: Sequence[str] = (),
    backends: Sequence[Backend] | None = None,
    read_only: bool = False,
    secrets: Mapping[str, Secret] | None = None,
) -> Iterator[Console]:
    """A console for as long as the block lasts. See :func:`sandbox_console.open_console`."""
    loop = current()
    opening = library.open_console(
        config_file=config_file, backend=backend, hosts=hosts, backends=backends, read_only=read_only, secrets=secrets
    )

    async def closed() -> None:
        await opening.__aexit__(None, None, None)

    inner = loop.run(opening.__aenter__)
    loop.keep(opening, closed)
    try:
        yield Console(loop, inner)
    finally:
        loop.close(opening)


class Console:
    """Every sandbox of every backend: :class:`sandbox_console.Console` without asyncio."""

    def __init__(self, loop: Loop, inner: library.Console) -> None:
        self._loop, self._inner = loop, inner

    def create(
        self,
        spec: SandboxSpec,
        *,
        backend: str = "",
        start: bool = True,
        secrets: Mapping[str, Secret] | None = None,
        consent: Consent = Consent(),  # noqa: B008 - frozen
    ) -> Held[SandboxHandle]:
        """Make a sandbox and start it: ``with`` removes it at the end of the block, ``.get()`` leaves it.

        See :meth:`sandbox_console.Console.create`.
        """
        inner = self._inner.create(spec, backend=backend, start=start, secrets=secrets, consent=consent)
        return Held(self._loop, inner, lambda handle: SandboxHandle(self._loop, handle))

    def sandbox(self, name: str | SandboxRef, *, consent: Consent = Consent()) -> SandboxHandle:  # noqa: B008 - frozen
        """An existing sandbox, by name or ref. See :meth:`sandbox_console.Console.sandbox`."""
        return SandboxHandle(self._loop, self._loop.run(lambda: self._inner.sandbox(name, consent=consent)))

    def list(self, backend: str = "") -> tuple[Sequence[Sandbox], Sequence[BackendHealth]]:
        """All sandboxes, and the health of each queried backend, which explains an empty list."""
        return self._loop.run(lambda: self._inner.list(backend))

    def health(self) -> Sequence[BackendHealth]:
        """The health of every backend, queried now."""
        return self._loop.run(self._inner.health)

    def perform(self, action: Action, *, consent: Consent = Consent()) -> ActionResult:  # noqa: B008 - frozen
        """Carry out an action to its end. Raises the error if it fails."""

        async def done() -> ActionResult:
            return await ended(self._inner.perform(action, consent=consent))

        return self._loop.run(done)

    def shell(self, request: OpenShell, *, consent: Consent = Consent()) -> ShellSession:  # noqa: B008 - frozen
        """Open a shell on a PTY. Raises Conflict if the sandbox is not running."""
        return ShellSession(self._loop, self._loop.run(lambda: self._inner.shell(request, consent=consent)))

    def logs(self, ref: SandboxRef, query: LogQuery) -> Iterator[Sequence[LogItem]]:
        """Batches of a sandbox's output, with known secrets masked."""
        return each(self._loop, self._inner.logs(ref, query))

    def history(self, query: AuditQuery) -> Sequence[AuditEntry]:
        """Recorded actions, newest first."""
        return self._loop.run(lambda: self._inner.history(query))
