"""``sandbox-console share``: shows the console through textual-web, a client of a public relay."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import shlex
import shutil
import signal
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from sandbox_console.errors import ConsoleError, Denied, UsageError
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.model.text import clean
from sandbox_console.service.gate.audit_log import current_actor
from sandbox_console.web import textual_web
from sandbox_console.web.environment import is_needed
from sandbox_console.web.login_records import SHARE, login_records
from sandbox_console.web.options import console_command
from sandbox_console.web.process_group import process_group

ENVIRONMENTS = ("prod", "local", "dev")
"""The relays that textual-web knows: its makers' public one, one at 127.0.0.1:8080, and its makers' for testing."""

API_KEY = "GANGLION_API_KEY"
"""The variable with the operator's account at the relay. textual-web reads it; the console does not get it."""

_DRIVER = "sandbox_console.web.textual_driver:SharedDriver"
_LAUNCHER = "console"
_NO_LOGIN = (
    "share makes the console a client of a public relay, which does not ask viewers who they are: whoever has the"
    " link is in, and the relay's operator sees all that is shown and typed"
)


class ShareOptions(Struct, frozen=True):
    """The options of ``share``. ``agreed`` is the operator's consent to a public relay without a login."""

    agreed: bool = False
    read_write: bool = False
    environment: str = "prod"
    backend: str | None = None
    only_hosts: tuple[str, ...] = ()
    config: Path | None = None

    def check(self) -> None:
        """Raise Denied without consent, UsageError for a relay that textual-web does not know."""
        if self.environment not in ENVIRONMENTS:
            raise UsageError(
                f"--environment: {self.environment!r} is not a relay that textual-web knows",
                hint=f"one of {', '.join(ENVIRONMENTS)}",
            )
        if not self.agreed:
            may = (
                "they may do all that the policy allows"
                if self.read_write
                else "they see everything and change nothing"
            )
            raise Denied(
                f"{_NO_LOGIN}; {may}",
                rule="share",
                hint="--yes agrees to that; sandbox-console serve has a login and no relay",
            )


async def run(options: ShareOptions, say: Callable[[str], None]) -> int:
    """Share until SIGINT or SIGTERM; returns the exit code. Raises ConsoleError if textual-web cannot run."""
    task = asyncio.create_task(_share(options, say))
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(signum, task.cancel)
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
    return 0


async def _share(options: ShareOptions, say: Callable[[str], None]) -> None:
    cache = textual_web.cache_folder()
    python = await textual_web.install(cache, say)
    with _run_folder(cache) as folder:
        config = write_config(folder, options)
        argv = [str(python), "-I", "-m", "textual_web.cli", "--config", str(config)]
        say(f"warning: {_NO_LOGIN}. Stop with Ctrl+C")
        async with (
            _recorded(options, say),
            process_group(
                [*argv, "--environment", options.environment],
                env=relay_environment(os.environ),
                cwd=folder,
                stdout=PIPE,
                stderr=STDOUT,
            ) as process,
        ):
            await _pass_on(process, say)
            code = await process.wait()
    raise ConsoleError(f"textual-web has ended by itself, with exit code {code}", hint="its last lines say why")


@contextlib.asynccontextmanager
async def _recorded(options: ShareOptions, say: Callable[[str], None]) -> AsyncIterator[None]:
    """Record in the audit log that the console is shared, and that it no longer is."""
    async with login_records(options.config, say) as records:
        body = {"relay": options.environment, "read_only": not options.read_write}
        await records.begin(SHARE, SHARE, current_actor(), body)
        try:
            yield
        finally:
            await run_to_completion(records.end(SHARE, "it was stopped"))


@contextlib.contextmanager
def _run_folder(cache: Path) -> Iterator[Path]:
    """A folder for one run, which is removed at its end. Those of killed runs are removed first."""
    for old in cache.glob("share-*"):
        with contextlib.suppress(OSError), _held(old):
            shutil.rmtree(old)
    with tempfile.TemporaryDirectory(prefix="share-", dir=cache) as name, _held(Path(name)):
        yield Path(name)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock a folder while inside. Raises BlockingIOError if another run holds it."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


def write_config(folder: Path, options: ShareOptions) -> Path:
    """Write textual-web's configuration and the launcher it runs; the link's last part cannot be guessed.

    It is an ``app`` and not a ``terminal``, whose programs would leave textual-web's process group. Its command goes
    through a shell, after ``$`` was expanded, so it is a single plain word: a launcher beside the file.
    """
    launcher = folder / _LAUNCHER
    command = console_command(
        config=options.config,
        backend=options.backend,
        read_only=not options.read_write,
        only_hosts=options.only_hosts,
    )
    launcher.write_text(
        f"#!/bin/sh\nunset {API_KEY}\nexport TEXTUAL_DRIVER={_DRIVER}\n"
        f"export SANDBOX_CONSOLE_ACTOR=shared:{options.environment}\n"
        f"cd {shlex.quote(str(Path.cwd()))} || exit 1\nexec {shlex.join(command)}\n"
    )
    launcher.chmod(0o700)
    config = folder / "textual-web.toml"
    config.write_text(f'[app.sandbox-console]\nslug = "{secrets.token_hex(16)}"\ncommand = "./{_LAUNCHER}"\n')
    return config


def relay_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of textual-web and, through it, of the console. The only secret among them is the relay's key."""
    kept = {name: value for name, value in environment.items() if is_needed(name) or name == API_KEY}
    # Rich breaks lines at this width if it has no terminal, and a link must stay whole.
    return kept | {"COLUMNS": "400", "TERM": "dumb", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}


async def _pass_on(process: Process, say: Callable[[str], None]) -> None:
    """Print the output of textual-web, cleaned, as it includes messages of the relay."""
    stream = process.stdout
    while stream and (data := await _line(stream)):
        if text := clean(data).rstrip():
            say(text)


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readuntil()
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(error.consumed)
