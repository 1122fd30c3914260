"""Commands and files in a sandbox, through the toolbox's ``/process/execute``.

The toolbox answers with stdout and stderr as one text. So a script stores them in files and prints both in base64.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import secrets
import shlex
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

from msgspec import Struct

from sandbox_console.backends.common import guest_tar
from sandbox_console.backends.common.buffered_process import BufferedProcess, Whole
from sandbox_console.backends.common.guest_command import MARK, end_marked
from sandbox_console.backends.common.remote import Silent
from sandbox_console.backends.daytona.client import Client
from sandbox_console.backends.tarscan import guarded
from sandbox_console.errors import BackendError, Conflict, ConsoleError, Unsupported
from sandbox_console.model.sandbox import Exit

MOST_BYTES = 2 << 20
"""Of stdout and of stderr each: in base64, both are below what one answer may have."""
_BETWEEN = "--sandbox-console--"
_RUN = """
d=$(mktemp -d) || exit 125
exec 2>/dev/null
( exec {command} ) >"$d/out" 2>"$d/err" </dev/null
code=$?
head -c {most} "$d/out" | base64
echo {between}
head -c {most} "$d/err" | base64
echo {between}
wc -c <"$d/out"
wc -c <"$d/err"
rm -rf "$d"
exit $code
"""
_FOLDER = "/tmp"  # noqa: S108 - the guest's
_LATE_S = 10.0


class DaytonaProcess(BufferedProcess):
    """One command. Its end is asked for by its mark, because the toolbox goes on when a connection is dropped."""

    def __init__(self, client: Client, sandbox: str, argv: Sequence[str], timeout_s: float | None = None) -> None:
        self._client, self._sandbox, self._mark = client, sandbox, secrets.token_hex(8)
        super().__init__(run(client, sandbox, ["env", f"{MARK}={self._mark}", *argv], timeout_s))

    async def kill(self) -> None:
        """End it and what it started."""
        if not self._asked.done():
            with contextlib.suppress(ConsoleError):
                await run(self._client, self._sandbox, end_marked(self._mark), _LATE_S)
        await super().kill()


class Guest(Struct, frozen=True):
    """A running sandbox, for files."""

    client: Client
    sandbox: str

    async def run(self, argv: Sequence[str], *, stdin: bool = False) -> DaytonaProcess:  # noqa: ARG002 - it has none
        """Start a command."""
        return DaytonaProcess(self.client, self.sandbox, argv)

    async def ask(self, script: str, *words: str) -> tuple[int | None, bytes, bytes]:
        """Run a script to its end. Raises BackendError."""
        found = await run(self.client, self.sandbox, ["sh", "-c", script, "sh", *words], 20.0)
        return found.exit.code, found.stdout, found.stderr

    async def download(self, path: str) -> AsyncGenerator[bytes, None]:
        """A tar of ``path``: written in the guest, read, and removed."""
        archive = f"{_FOLDER}/.sandbox-console-{secrets.token_hex(8)}.tar"
        try:
            packed = [word.replace("-cf -", f"-cf {archive}") for word in guest_tar.pack(path, "sh")]
            judge(await run(self.client, self.sandbox, packed, None), path)
            async with aclosing(self.client.download(self.sandbox, archive)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            await self._drop(archive)

    async def upload(self, path: str, archive: AsyncIterator[bytes]) -> None:
        """Unpack a tar into the folder ``path``. Raises UsageError for a member that would leave it."""
        code, _, err = await self.ask(guest_tar.NEED_FOLDER, path)
        judge(Whole(Exit(code), stderr=err), path)
        file = f"{_FOLDER}/.sandbox-console-{secrets.token_hex(8)}.tar"
        source = _Source(guarded(archive))
        try:
            await self.client.upload(self.sandbox, file, source.chunks())
            judge(await run(self.client, self.sandbox, ["tar", "-xf", file, "-C", path], None), path)
        except ConsoleError:
            if source.error is not None:  # the request's own error only says that it broke off
                raise source.error from None
            raise
        finally:
            await self._drop(file)

    async def _drop(self, file: str) -> None:
        with contextlib.suppress(ConsoleError):
            await run(self.client, self.sandbox, ["rm", "-f", file], _LATE_S)


class _Source:
    """An archive that is sent. ``error`` is what ended it before its end."""

    def __init__(self, archive: AsyncIterator[bytes]) -> None:
        self._archive = archive
        self.error: Exception | None = None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in self._archive:
                yield chunk
        except Exception as error:
            self.error = error
            raise


async def run(client: Client, sandbox: str, argv: Sequence[str], timeout_s: float | None) -> Whole:
    """Run words to their end. Raises a ConsoleError."""
    script = _RUN.format(command=shlex.join(argv), most=MOST_BYTES, between=_BETWEEN)
    packed = base64.b64encode(script.encode("utf-8", "surrogateescape")).decode()
    limit = None if timeout_s is None else timeout_s + _LATE_S
    ended = await client.run(sandbox, f"""sh -c 'eval "$(echo {packed} | base64 -d)"'""", limit)
    code = ended.exit_code if ended.exit_code is not None else ended.code
    parts = ended.result.split(_BETWEEN)
    if len(parts) != 3:
        text = f"{client.label}: exec: the snapshot lacks sh, base64, mktemp or head, which commands are run by"
        raise Unsupported(f"{text}: {ended.result.strip()[:200]}")
    try:
        out, err = (base64.b64decode(part) for part in parts[:2])
        sizes = [int(word) for word in parts[2].split()]
    except (binascii.Error, ValueError):
        raise Silent(f"{client.label}: exec: the output cannot be read") from None
    cut = f"the console reads the first {MOST_BYTES >> 20} MiB" if any(one > MOST_BYTES for one in sizes) else ""
    return Whole(Exit(code, code - 128 if code is not None and 128 < code < 193 else None, reason=cut), out, err)


def judge(found: Whole, path: str) -> None:
    """Raise what the end of a command that moves ``path`` means."""
    if found.exit.code == 0:
        return
    guest_tar.need_path(found.exit.code, path)
    message = found.stderr.decode("utf-8", "replace").strip()[:300]
    if "Read-only file system" in message or "Permission denied" in message:
        raise Conflict(f"{path} cannot be written: {message}")
    raise BackendError(f"{path} could not be moved: {message}")
