"""The console for programs, over every backend. Its actions go the same way as the command line's and the app's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import structs

from sandbox_console import service
from sandbox_console.errors import NotFound
from sandbox_console.library.async_resource import Held
from sandbox_console.library.sandbox import SandboxHandle
from sandbox_console.model.action import Action, Create, OpenShell
from sandbox_console.model.audit import AuditEntry, AuditQuery
from sandbox_console.model.cancellation import run_to_completion, shielded, wait_until_done
from sandbox_console.model.log import LogItem, LogQuery
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef
from sandbox_console.model.secret import Secret
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Backend, Consent, ExecIO, Operation, ShellSession, Subscription


@asynccontextmanager
async def open_console(
    *,
    config_file: str | Path | None = None,
    backend: str = "",
    hosts: Sequence[str] = (),
    backends: Sequence[Backend] | None = None,
    read_only: bool = False,
    secrets: Mapping[str, Secret] | None = None,
) -> AsyncIterator[Console]:
    """A console for as long as the block lasts. Its end cancels what is in flight; sandboxes keep running.

    ``config_file`` is read instead of the user's own. ``backend`` (``docker``, ``docker/NAME``) leaves the others out,
    and so does ``hosts`` (``web*``, ``zone=eu``): then a sandbox is made on the host where the fewest run. ``backends``
    replaces those that are registered, for tests with ``sandbox_console.testing``. ``secrets`` are given by value, for
    this process only. Raises ConfigError, SecretError.
    """
    async with service.open_console(
        config_file=Path(config_file) if config_file is not None else None,
        backends=backends, read_only=read_only, only_backend=backend, only_hosts=hosts, secrets=secrets,
    ) as opened:  # fmt: skip
        yield Console(opened)


class Console:
    """Every sandbox of every backend. It is made by :func:`open_console`.

    Every change is checked by the policy and recorded in the audit log, as from the command line.
    """

    def __init__(self, opened: service.Console) -> None:
        self._console = opened

    def create(
        self,
        spec: SandboxSpec,
        *,
        backend: str = "",
        start: bool = True,
        secrets: Mapping[str, Secret] | None = None,
        consent: Consent = Consent(),  # noqa: B008 - frozen
    ) -> Held[SandboxHandle]:
        """Make a sandbox and start it. ``async with`` removes it at the end of the block; ``await`` leaves it.

        ``backend`` is a name, or name/host; by default the configured one, else the first that answers. ``secrets`` are
        handed over in addition to those that the spec names, for as long as this console is open. A cancelled create
        leaves nothing behind. Raises InvalidSpec, Conflict (the name is taken), Denied, Unsupported,
        BackendUnreachable, BackendError, AuditUnavailable.
        """

        async def make() -> SandboxHandle:
            return await self._create(spec, backend, dict(secrets or {}), consent, start=start)

        return Held(make, _removed)

    async def _create(
        self, spec: SandboxSpec, backend: str, secrets: Mapping[str, Secret], consent: Consent, *, start: bool
    ) -> SandboxHandle:
        for name, secret in secrets.items():
            self._console.give_secret(name, secret)
        spec = structs.replace(spec, secrets=tuple(dict.fromkeys([*spec.secrets, *secrets])))
        await self._console.refuse_held(spec.name)
        action = Create(spec, *await self._console.place_for(backend), start=start)
        operation = self._console.perform(action, consent=consent)
        waiting = asyncio.ensure_future(operation.result())
        try:
            result = await shielded(waiting)
        except asyncio.CancelledError:
            operation.cancel()
            error = await wait_until_done(waiting)
            if error is None and (ref := waiting.result().ref):  # it was made, but the caller does not know
                await run_to_completion(_removed(SandboxHandle(self._console, ref, spec.name, consent)))
            raise
        assert result.ref is not None  # noqa: S101 - a create that ended well has made one
        return SandboxHandle(self._console, result.ref, spec.name, consent)

    async def sandbox(self, name: str | SandboxRef, *, consent: Consent = Consent()) -> SandboxHandle:  # noqa: B008 - frozen
        """An existing sandbox, by name, ``backend:name``, ``backend/host/id`` or ref.

        ``consent`` is used for each action. Actions that need confirmation by the policy, such as those on other tools'
        sandboxes, are refused without it. Raises NotFound, Ambiguous, BackendUnreachable.
        """
        if isinstance(name, SandboxRef):
            found = await self._console.inspect(name)
        else:
            found = await self._console.find(name, changing=True)
        return SandboxHandle(self._console, found.ref, found.name, consent)

    async def list(self, backend: str = "") -> tuple[Sequence[Sandbox], Sequence[BackendHealth]]:
        """All sandboxes, and the health of each queried backend, which explains an empty list."""
        return await self._console.list(backend)

    async def health(self) -> Sequence[BackendHealth]:
        """The health of every backend, queried now."""
        return await self._console.health()

    def perform(
        self,
        action: Action,
        *,
        consent: Consent = Consent(),  # noqa: B008 - frozen
        io: ExecIO | None = None,
    ) -> Operation:
        """Carry out any action. ``result()`` raises its error, ``events()`` reports progress, ``cancel()`` ends it.

        It belongs to the console, so it goes on even if the caller stops waiting.
        """
        return self._console.perform(action, consent=consent, io=io)

    async def shell(self, request: OpenShell, *, consent: Consent = Consent()) -> ShellSession:  # noqa: B008 - frozen
        """Open a shell on a PTY. Raises Conflict if the sandbox is not running."""
        return await self._console.shell(request, consent=consent)

    def logs(self, ref: SandboxRef, query: LogQuery) -> AsyncIterator[Sequence[LogItem]]:
        """Batches of a sandbox's output, with known secrets masked."""
        return self._console.logs(ref, query)

    def watch(self) -> Subscription:
        """Subscribe to everything that changes, beginning with the current state. Close it when done."""
        return self._console.watch()

    async def history(self, query: AuditQuery) -> Sequence[AuditEntry]:
        """Recorded actions, newest first."""
        return await self._console.history(query)


async def _removed(box: SandboxHandle) -> None:
    with suppress(NotFound):  # somebody else has removed it
        await box.remove(force=True)
