"""Runs the keeper as a process: starts it if it is needed, checks it, and replaces it by a newer one."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from sandbox_console.background_process import ProcessFolder
from sandbox_console.errors import BackendError
from sandbox_console.version import __version__

if TYPE_CHECKING:
    from sandbox_console.backends.docker.lifetime_keeper import LifetimeKeeper

START_S = 10.0
"""How long a keeper may take to answer. Its imports alone take half a second on an idle machine."""

ANSWER_S = 1.0
RECENT_S = 2.0

_ENV = ("DOCKER_", "CONTAINER_", "SANDBOX_CONSOLE_", "XDG_", "PYTHON", "LC_", "LANG", "LD_", "SSL_")
_ENV_NAMES = frozenset({"HOME", "PATH", "TZ", "TMPDIR", "USER", "LOGNAME"})


class Answer(Struct, frozen=True):
    """What a keeper reports: its process, its version, and how many running containers it holds to a limit."""

    pid: int
    version: str
    held: int


class KeeperProcess:
    """The keeper of one engine and one state folder, from a console's point of view."""

    def __init__(self, folder: Path, backend: str, context: str, engine: str) -> None:
        self._folder, self._backend, self._context, self._engine = folder, backend, context, engine
        self._name = name_of(engine)
        self._asked_s = -RECENT_S
        self._last: Answer | None = None

    def need(self) -> Answer:
        """Make sure that a keeper is running. One of another version is replaced. Raises BackendError."""
        ends = time.monotonic() + START_S
        try:
            process_folder = ProcessFolder(str(self._folder / "keeper"), make=True)
        except OSError as error:
            raise self._failed(f"{error.strerror or error}") from error
        try:
            while time.monotonic() < ends:
                found = _ask(process_folder, self._name)
                if found is not None and found.version == __version__:
                    return found
                if found is not None:
                    process_folder.end(self._name, signal.SIGTERM)
                process_folder.start(self._name, self._command(), _environment())
                time.sleep(0.05)
        except OSError as error:
            raise self._failed(f"{error.strerror or error}") from error
        finally:
            process_folder.close()
        raise self._failed(f"no answer within {START_S:g} s")

    def see(self) -> None:
        """Start a keeper if none is running, without waiting for it."""
        with suppress(OSError):
            process_folder = ProcessFolder(str(self._folder / "keeper"), make=True)
            try:
                if _ask(process_folder, self._name) is None:
                    process_folder.start(self._name, self._command(), _environment())
            finally:
                process_folder.close()

    def look(self) -> Answer | None:
        """What the keeper reports; None if it is not running or does not answer."""
        if time.monotonic() - self._asked_s >= RECENT_S:
            self._last = None
            with suppress(OSError):
                process_folder = ProcessFolder(str(self._folder / "keeper"))
                try:
                    self._last = _ask(process_folder, self._name)
                finally:
                    process_folder.close()
            self._asked_s = time.monotonic()
        return self._last

    def _command(self) -> list[str]:
        words = ["keeper", self._backend, self._context, str(self._folder), self._engine]
        return [sys.executable, "-P", "-m", "sandbox_console", *words]

    @staticmethod
    def _failed(reason: str) -> BackendError:
        return BackendError(
            f"the keeper, which enforces time limits, cannot be started: {reason}",
            hint='sandbox-console doctor; without time limits, or with limits = "best-effort", it is not needed',
        )


def name_of(engine: str) -> str:
    """The name of an engine's keeper. The id is hashed, since an engine chooses its own."""
    return f"docker-{hashlib.sha256(engine.encode()).hexdigest()[:16]}"


async def serve(keeper: LifetimeKeeper, folder: Path, engine: str) -> None:
    """Run as the process of this name, which holds the lock: answer, keep the limits, and leave no gap at the end."""
    process_folder, name = ProcessFolder(str(folder / "keeper")), name_of(engine)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(json.dumps({"pid": os.getpid(), "version": __version__, "held": keeper.count}).encode())
        with suppress(OSError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, sock=process_folder.listen(name))
    try:
        await keeper.run(engine)
    finally:
        server.close()
        process_folder.leave(name)
        process_folder.close()


def _ask(process_folder: ProcessFolder, name: str) -> Answer | None:
    connection = process_folder.connect(name, ANSWER_S)
    if connection is None:
        return None
    with connection, suppress(OSError, ValueError, TypeError, KeyError):
        data = b""
        while more := connection.recv(4096):
            data += more
        reply = json.loads(data)
        return Answer(int(reply["pid"]), str(reply["version"]), int(reply["held"]))
    return None


def _environment() -> dict[str, str]:
    """The variables that its connection and its log need, without any secret of the process that started it."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name.startswith(_ENV) or name in _ENV_NAMES) and name != "SANDBOX_CONSOLE_ACTOR" and "TOKEN" not in name
    }
