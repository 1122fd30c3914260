"""The audit log as the service uses it: it is opened when first needed, and its problems are reported."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import AsyncGenerator, Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_console.audit.layout import Layout
from sandbox_console.errors import AuditUnavailable, ConfigError, UsageError
from sandbox_console.hostfs.guest_writable import AROUND, GuestFolders
from sandbox_console.model.audit import AuditEntry, AuditQuery, AuditSelection, AuditStats, Verification
from sandbox_console.model.cancellation import shielded
from sandbox_console.model.event import AuditChanged
from sandbox_console.secrets.sources import SecretSource, resolve
from sandbox_console.service.config import AuditOptions

if TYPE_CHECKING:  # imported when used: a command that changes nothing needs no journal, and it takes 15 ms
    from sandbox_console.audit.journal import Journal


def current_actor() -> str:
    """Who acts: the browser login that the server passed on, or else the system's user."""
    named = os.environ.get("SANDBOX_CONSOLE_ACTOR")
    if named:
        return named[:200]
    try:
        return f"user:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"uid:{os.getuid()}"


class AuditLog:
    """The audit log of one console. Reads need no journal and still work while it cannot be written."""

    def __init__(
        self, path: Path, actor: str, publish: Callable[[AuditChanged], None], options: AuditOptions = AuditOptions(),  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        self.path = path
        self.options = options
        self.actor = actor
        self.problem = ""
        self.guest_folders: Callable[[], GuestFolders] = GuestFolders
        """Reads which folders guests can change."""
        self.tell_wait: Callable[[str], None] = lambda _: None
        """Is called with whom an action waits for; for a face that watches no events."""
        self._publish = publish
        self._journal: Journal | None = None
        self._opening: asyncio.Task[Journal] | None = None

    async def journal(self) -> Journal:
        """The journal, opened once. Raises AuditUnavailable; the next call tries again."""
        if self._opening is None or (self._opening.done() and self._journal is None):
            self._opening = asyncio.create_task(self._open())
        # A caller that is cancelled while it waits must not leave a half-opened journal behind.
        return await shielded(self._opening)

    async def _open(self) -> Journal:
        from sandbox_console.audit.journal import Journal

        try:
            loop = asyncio.get_running_loop()

            def waits(text: str) -> None:  # on the journal's thread
                loop.call_soon_threadsafe(self._note_waiting, text)

            self._journal = await Journal.open(self.path, self.actor, self.options.keep, waits)
        except AuditUnavailable as error:
            self.note_problem(error.message)
            raise
        self.note_problem("")
        return self._journal

    def _note_waiting(self, text: str) -> None:
        self.note_problem(f"the audit log is locked: {text}")
        self.tell_wait(self.problem)

    def note_problem(self, text: str) -> None:
        """Report that the log cannot be written, or with an empty text that it can be again."""
        if text != self.problem:
            self.problem = text
            self._publish(AuditChanged(text))

    async def close(self) -> None:
        """End the session."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._journal is not None:
            journal, self._journal = self._journal, None
            await journal.close()

    async def entries(self, wanted: AuditQuery) -> list[AuditEntry]:
        """Attempts with their ends, newest first."""
        from sandbox_console.audit import query

        return await query.entries(self.path, wanted)

    async def version(self) -> Hashable:
        """What is in the log, or waits beside it. While it stays the same, nothing is new to list."""
        from sandbox_console.audit import waiting_rows

        return await self.newest(), await asyncio.to_thread(waiting_rows.version, Layout(self.path))

    async def newest(self) -> int:
        """The seq of the newest row. While it stays the same, nothing is new."""
        from sandbox_console.audit import query

        return await query.newest(self.path)

    async def entry(self, seq: int) -> AuditEntry:
        """One attempt. Raises NotFound."""
        from sandbox_console.audit import query

        return await query.entry(self.path, seq)

    async def verify(
        self, folder: Path | None = None, public_key: bytes | None = None, archive: Path | None = None
    ) -> Verification:
        """Verify the whole log, or another log in ``folder``. With a ``public_key`` (PEM), its secret is not needed.

        ``archive`` has what the retention removed, which is checked first. Raises UsageError for a folder without a log
        and for an invalid key.
        """
        from sandbox_console.audit import verify
        from sandbox_console.audit.keys import PublicKey
        from sandbox_console.audit.layout import Layout

        path = folder / self.path.name if folder else self.path
        if folder and not Layout(path).indices():
            raise UsageError(f"there is no audit log in {folder}", hint=f"it is the folder with {path.name}")
        if archive and not Layout(archive / path.name).indices():
            raise UsageError(f"there are no segments of an audit log in {archive}", hint="see audit.archive")
        try:
            public = PublicKey(public_key) if public_key is not None else None
            return await verify.verify(path, public, archive)
        except ValueError as error:
            raise UsageError(
                f"this is not the public key of an audit log: {error}",
                hint="sandbox-console audit public-key prints it",
            ) from None

    def public_key(self) -> bytes:
        """The key with which other machines verify this log, as PEM. Raises AuditUnavailable if there is no key yet."""
        from sandbox_console.audit.keys import Keys
        from sandbox_console.audit.layout import Layout
        from sandbox_console.audit.open_segment import unavailable

        key = Layout(self.path).key
        try:
            return Keys(key).public()
        except FileNotFoundError:
            raise AuditUnavailable(f"there is no {key} yet", hint="the first action makes it") from None
        except (OSError, ValueError) as error:
            raise unavailable(error, key) from error

    def sign(self, text: bytes) -> bytes:
        """An Ed25519 signature (64 bytes) by the log's key. ``text`` begins with a line that says what it is.

        Raises AuditUnavailable if there is no key.
        """
        from sandbox_console.audit.keys import Keys
        from sandbox_console.audit.layout import Layout
        from sandbox_console.audit.open_segment import unavailable

        key = Layout(self.path).key
        try:
            return bytes.fromhex(Keys(key).sign(text))
        except (OSError, ValueError) as error:
            raise unavailable(error, key) from error

    def export(self, form: str, select: AuditSelection) -> AsyncGenerator[bytes, None]:
        """Blocks of the log in a format of `audit.export.formats`, oldest row first. Raises UsageError for others.

        A caller that stops before the end has to close it.
        """
        from sandbox_console.audit import export

        return export.export(self.path, form, select)

    async def stats(self) -> AuditStats:
        """Counts over the whole log."""
        from sandbox_console.audit import stats

        return await stats.stats(self.path)

    @property
    def ships(self) -> bool:
        """Whether the config names a server to ship to."""
        return bool(self.options.ship.dsn or self.options.ship.otlp)

    async def unshipped(self) -> int | None:
        """How many rows at least one configured server does not have yet; None without any. Raises AuditUnavailable."""
        from sandbox_console.audit import ship

        if not self.ships:
            return None
        layout, options = Layout(self.path), self.options.ship
        files = [file for file, used in ((layout.cursor, options.dsn), (layout.otlp_cursor, options.otlp)) if used]
        return max(0, await self.newest() - min([await ship.sent(self.path, file) for file in files]))

    async def ship(self, *, init: bool = False) -> int:
        """Send the rows that were not sent yet; with ``init``, make PostgreSQL's table first.

        Returns the number of rows. A server that fails does not keep the rows from the other one.
        """
        if not self.ships:
            raise ConfigError("no audit server is configured", hint='[audit.ship] dsn = "env:NAME" or "file:PATH"')
        options = self.options.ship
        ways = [self._ship_to_postgres(init)] if options.dsn else []
        ways += [self._ship_by_otlp()] if options.otlp else []
        sent = await asyncio.gather(*ways, return_exceptions=True)
        for result in sent:
            if isinstance(result, BaseException):
                raise result
        return sum(count for count in sent if isinstance(count, int))

    async def _ship_to_postgres(self, init: bool) -> int:
        from sandbox_console.audit import ship

        dsn = await self._shipping_secret("dsn", self.options.ship.dsn)
        if init:
            await ship.init(dsn)
        return await ship.ship(self.path, dsn)

    async def _ship_by_otlp(self) -> int:
        from sandbox_console.audit import ship_otlp

        options = self.options.ship
        headers = await self._shipping_secret("otlp_headers", options.otlp_headers) if options.otlp_headers else ""
        url = ship_otlp.checked_url(options.otlp, secret=bool(headers))
        return await ship_otlp.ship(self.path, url, ship_otlp.parse_headers(headers))

    async def _shipping_secret(self, option: str, source: str) -> str:
        """The value of an option that names where a secret is. Raises SecretError, also for what a guest planted."""
        from sandbox_console.service.gate.vault import keep_to_itself

        keep_to_itself()
        AROUND.set(await asyncio.to_thread(self.guest_folders))
        name = f"audit.ship.{option}"
        [secret] = await resolve([name], {name: SecretSource(source=source)})
        return secret.value
