"""What a face may know about secrets: everything except their values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from sandbox_console.errors import SecretError
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets import local
from sandbox_console.secrets.sources import unkept, unreached
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.leaks import AskGround, Leak, LeakScan, Look, NotLooked


class SecretInfo(Struct, frozen=True):
    """One secret of the config. ``used_by`` are the names of sandboxes whose spec requests it.

    ``problem`` is why it cannot be read, with a ``hint``; ``note`` is what should be improved. Both are set only by a
    check.
    """

    name: str
    source: str
    kind: str
    inject: str
    hosts: tuple[str, ...]
    used_by: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""
    note: str = ""


class Secrets:
    """The secrets of one console."""

    def __init__(self, vault: Vault, fleet: Fleet, state: Path, look: Look, guest_folders: AskGround) -> None:
        self._vault = vault
        self._fleet = fleet
        self._scan = LeakScan(fleet, vault, state, look, guest_folders)

    @property
    def names(self) -> Sequence[str]:
        """The names that the config defines."""
        return self._vault.names

    @property
    def defined(self) -> Sequence[SecretInfo]:
        """All secrets, by name, without the sandboxes that use them."""
        table = sorted(self._vault.table.items())
        return [SecretInfo(name, one.shown, one.kind, one.inject, one.hosts) for name, one in table]

    async def listed(self) -> tuple[Sequence[SecretInfo], Sequence[BackendHealth]]:
        """All secrets with the sandboxes that use them, and the hosts that could not be queried about that.

        No host is asked if no secret is defined.
        """
        if not self._vault.table:
            return (), ()
        sandboxes, healths = await self._fleet.listing()
        users: dict[str, list[str]] = {}
        for sandbox in sandboxes:
            for name in sandbox.spec.secrets if sandbox.spec else ():
                users.setdefault(name, []).append(sandbox.name)
        secrets = [replace(one, used_by=tuple(sorted(users.get(one.name, ())))) for one in self.defined]
        # A backend that cannot work here at all has no sandboxes either.
        return secrets, [one for one in healths if one.state is HealthState.UNREACHABLE]

    async def checked(self, secret: SecretInfo) -> SecretInfo:
        """Read a secret, and say whether that worked."""
        source = self._vault.table[secret.name]
        note = local.exposure(source.source.partition(":")[2]) if source.kind == "file" else ""
        try:
            await self._vault.resolve([secret.name])
        except SecretError as error:
            return replace(secret, problem=error.message, hint=error.hint)
        return replace(secret, note=note)

    async def learn(self) -> None:
        """Read the values that need no program, so that `masked` hides them. Unreadable ones are skipped."""
        await self._vault.learn(self._vault.names, acting=False)

    def masked(self, text: str) -> str:
        """Return a text with the values that this process has read replaced."""
        return self._vault.redactor.text(text)

    def may_be_one(self, word: str, least: int) -> bool:
        """Whether a word has a value, or has ``least`` bytes while a keyring or program has not been read.

        Of an absolute path only known values count, as nearly every one has that many bytes.
        """
        if self.masked(word) != word or word.startswith("/"):
            return self.masked(word) != word
        long = len(word.encode("utf-8", "surrogatepass")) >= least
        return long and bool(self._vault.unread(self._vault.names, acting=True))

    def leaks(self, paths: Sequence[Path] = ()) -> AsyncIterator[Leak | NotLooked]:
        """Search for secrets where none should be. Searching a running sandbox is an exec, and is recorded."""
        return self._scan.run(paths)

    def notes(self, spec: SandboxSpec, backend: str, host: str) -> Sequence[str]:
        """A sentence for each secret that nothing on this backend restricts to its hosts, or that cannot get there."""
        table = self._vault.table
        shut = [unreached(name, table[name], spec.egress) for name in spec.secrets if name in table]
        return [*self._unkept(spec, backend, host), *filter(None, shut)]

    def further(self, sandbox: Sandbox, patterns: Iterable[str]) -> Sequence[str]:
        """One sentence for each secret of a sandbox that these patterns would let out beyond its hosts."""
        if sandbox.spec is None:
            return ()
        return self._unkept(replace(sandbox.spec, egress=tuple(patterns)), sandbox.ref.backend, sandbox.ref.host)

    def _unkept(self, spec: SandboxSpec, backend: str, host: str) -> list[str]:
        table, injects = self._vault.table, self._vault.injects(self._fleet.capabilities(backend, host))
        found = (unkept(name, table[name], injects[name], spec.egress) for name in spec.secrets if name in table)
        return [text for text in found if text]
