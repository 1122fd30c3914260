"""Resolves secrets for an action, and holds the redactor that knows every value resolved so far."""

from __future__ import annotations

import asyncio
import ctypes
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from sandbox_console.errors import Conflict, ConsoleError, SecretError
from sandbox_console.hostfs.guest_writable import AROUND, GuestFolders
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.secret import Inject, ResolvedSecret, Secret
from sandbox_console.secrets import sources
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.secrets.sources import SecretSource

_PR_SET_DUMPABLE = 4  # linux/prctl.h
_FRESH_S = 1.0
"""How long variables and files that were read for a description count as read."""


def keep_to_itself() -> None:
    """Forbid other processes of this user to read this process's memory from now on, and disable core dumps."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


class Vault:
    """Holds references to secrets. It holds values only in the forms that the redactor looks for."""

    def __init__(
        self, table: Mapping[str, SecretSource], guest_folders: Callable[[], GuestFolders] = GuestFolders,
        given: Mapping[str, Secret] | None = None,
    ) -> None:  # fmt: skip
        """``guest_folders`` is what guests can change, as far as is known without asking backends. It may read files.

        ``given`` are secrets by value, for this process only. They take precedence over those of the table.
        """
        self._given = dict[str, Secret]()
        self.table = dict(table)
        for name, secret in (given or {}).items():
            self.give(name, secret)
        self._ground = guest_folders
        self.redactor = Redactor()
        self._in_hosts = Redactor()
        self._known: set[str] = set()
        self._learning: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._plain = asyncio.Lock()
        self._plain_at = -_FRESH_S
        self.on_new: Callable[[], object] = lambda: None
        """Called when a value is known that was not known before, as what has been shown may contain it."""

    def adopt(self, table: Mapping[str, SecretSource]) -> None:
        """Use another table. Values that are known stay masked; those with another source are read again."""
        self._known -= {name for name in self._known if table.get(name) != self.table.get(name)}
        self._plain_at = -_FRESH_S
        self.table = {**table, **{name: self.table[name] for name in self._given}}

    def give(self, name: str, secret: Secret) -> None:
        """Add a secret by value. Raises SecretError for one that cannot be kept, Conflict for a different value."""
        if name in self._given and self._given[name] != secret:
            raise Conflict(
                f"the secret {name!r} has another value in this console",
                hint="give it another name, or open another console",
            )
        sources.check(name, secret.value)
        self._given[name] = secret
        self.table[name] = SecretSource(source="value:", inject=secret.inject, hosts=secret.hosts)

    @property
    def names(self) -> list[str]:
        """The names that the config defines, and those given by value."""
        return sorted(self.table)

    def injects(self, capabilities: Capabilities) -> dict[str, Inject]:
        """How a backend hands each secret over."""
        return {name: source.inject_on(capabilities) for name, source in self.table.items()}

    def undefined(self, names: Iterable[str]) -> list[str]:
        """The names that the config does not define."""
        return [name for name in names if name not in self.table]

    async def resolve(self, names: Iterable[str]) -> list[ResolvedSecret]:
        """Read the values, off the event loop. Raises SecretError."""
        wanted = list(names)
        if wanted:
            keep_to_itself()  # permanently, as the redactor has the values until the end
        if any(name in self.table and self.table[name].kind in ("file", "cmd") for name in wanted):
            AROUND.set(await asyncio.to_thread(self._ground))
        secrets = [await self._one(name) for name in wanted]
        self.mask(secret.value for secret in secrets)
        self._known |= {secret.name for secret in secrets}
        return secrets

    async def check(self, name: str, source: SecretSource) -> None:
        """Read the value of a source that no table has. It is masked from now on. Raises SecretError."""
        keep_to_itself()
        if source.kind in ("file", "cmd"):
            AROUND.set(await asyncio.to_thread(self._ground))
        [secret] = await sources.resolve([name], {name: source})
        self.mask([secret.value])

    def mask(self, values: Iterable[str]) -> None:
        """Hide these values in output from now on."""
        known = list(values)
        self._in_hosts.add(value.lower() for value in known)
        if self.redactor.add(known):
            self.on_new()

    async def _one(self, name: str) -> ResolvedSecret:
        if (given := self._given.get(name)) is not None:
            return ResolvedSecret(name, given.value, "env" if given.inject == "auto" else given.inject, given.hosts)
        [secret] = await sources.resolve([name], self.table)
        return secret

    def host(self, name: str) -> str:
        """A text with host names, masked. Hosts are reported in lower case, whatever was requested."""
        return self._in_hosts.text(self.redactor.text(name))

    def holds(self, data: bytes) -> bool:
        """Whether plain bytes contain a known value, or a host name one."""
        return bool(self.redactor.hits(data) or self._in_hosts.hits(data))

    def unread(self, names: Iterable[str], *, acting: bool = False) -> list[str]:
        """The names whose value this process has not read yet; with ``acting``, only those of keyrings and programs."""
        found = [name for name in names if name not in self._known]
        return [name for name in found if sources.acts(self.table[name])] if acting else found

    async def learn_plain(self) -> None:
        """Read every value that needs no program, as it may stand anywhere as plain text. Skips what cannot be read."""
        names = [name for name, source in self.table.items() if not sources.acts(source)]
        async with self._plain:
            if names and time.monotonic() - self._plain_at >= _FRESH_S:
                with suppress(ConsoleError):  # a guest has the console's own folders: no file can be trusted
                    await self._read_plain(names)
                self._plain_at = time.monotonic()

    async def _read_plain(self, names: Sequence[str]) -> None:
        keep_to_itself()
        if any(self.table[name].kind == "file" for name in names):
            AROUND.set(await asyncio.to_thread(self._ground))
        found: list[ResolvedSecret] = []
        for name in names:
            with suppress(SecretError):
                found.append(await self._one(name))
        self.mask(secret.value for secret in found)
        self._known |= {secret.name for secret in found}

    async def learn(self, names: Iterable[str], *, acting: bool = True) -> list[str]:
        """Read these values, so that the redactor knows them. Returns the names that cannot be resolved now.

        A variable or a file is read each time, so that a new value is known. A keyring or a program is used once, and
        only with ``acting``: before an action is on record, none of the user's programs are run for it.
        """
        missing: list[str] = []
        for name in names:
            async with self._learning[name]:
                missing += [] if await self._learned(name, acting=acting) else [name]
        return missing

    async def _learned(self, name: str, *, acting: bool) -> bool:
        source = self.table.get(name)
        if source is None:
            return False
        if sources.acts(source) and (not acting or name in self._known):
            return name in self._known
        try:
            await self.resolve([name])
        except SecretError:
            return False
        return True
