"""Finds the servers of the browser view that run here, and lists and ends the sessions that they show.

Each server listens on a socket in the state folder, which only its user may enter. A request is a line of JSON, and so
is the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from sandbox_console.background_process import ProcessFolder
from sandbox_console.errors import Ambiguous, BackendError, NotFound
from sandbox_console.service.paths import Paths

ANSWER_S = 5.0
_MOST_BYTES = 1 << 20
_LS = "sandbox-console sessions ls"


class BrowserSession(Struct, frozen=True):
    """One app that a server runs for a browser. ``began_at`` is in Unix seconds, ``away_s`` is None while it is shown.

    ``idle_s`` is the time since the last key, click or change of size.
    """

    id: str
    actor: str
    began_at: float
    idle_s: float
    away_s: float | None = None
    server: str = ""


def folder_of(paths: Paths) -> Path:
    """The folder of the servers' sockets."""
    return paths.state / "serve"


class BrowserServers:
    """The servers of one state folder."""

    def __init__(self, paths: Paths) -> None:
        self._folder = folder_of(paths)

    def sessions(self) -> Sequence[BrowserSession]:
        """The sessions of all servers, the oldest first. Blocks for up to 5 s for each server that does not answer."""
        with self._opened() as folder:
            found = [session for name in _names(folder) for session in _sessions(folder, name)]
        return sorted(found, key=lambda session: session.began_at)

    def end(self, name: str, actor: str) -> BrowserSession:
        """End the session whose id begins with ``name``. Raises NotFound, Ambiguous, BackendError."""
        found = [session for session in self.sessions() if name and session.id.startswith(name)]
        if not found:
            raise NotFound(f"no browser session has the id {name!r}", hint=_LS)
        if len(found) > 1:
            ids = [session.id for session in found]
            raise Ambiguous(
                f"the ids of {len(found)} browser sessions begin with {name!r}", ids, hint="give more of it"
            )
        with self._opened() as folder:
            answer = _ask(folder, found[0].server, {"end": found[0].id, "actor": actor})
        if answer is None:
            raise BackendError(f"the server of session {name} does not answer", hint=_LS)
        return found[0]

    @contextlib.contextmanager
    def _opened(self) -> Iterator[ProcessFolder]:
        try:
            folder = ProcessFolder(str(self._folder), make=True)
        except OSError as error:
            raise BackendError(f"{self._folder} cannot be opened: {error.strerror or error}") from error
        try:
            yield folder
        finally:
            folder.close()


def _names(folder: ProcessFolder) -> list[str]:
    return sorted(file.removesuffix(".sock") for file in os.listdir(folder.fd) if file.endswith(".sock"))  # noqa: PTH208 - an open folder


def _sessions(folder: ProcessFolder, name: str) -> list[BrowserSession]:
    answer = _ask(folder, name, {"ls": True})
    with contextlib.suppress(msgspec.ValidationError):
        sessions = msgspec.convert(answer or [], list[BrowserSession])
        return [msgspec.structs.replace(session, server=name) for session in sessions]
    return []


def _ask(folder: ProcessFolder, name: str, question: dict[str, Any]) -> Any:
    """A server's answer, or None if there is no server or it does not answer."""
    sock = folder.connect(name, ANSWER_S)
    if sock is None:
        return None
    with sock, contextlib.suppress(OSError, ValueError):
        sock.sendall(json.dumps(question).encode() + b"\n")
        with sock.makefile("rb") as lines:
            return json.loads(lines.readline(_MOST_BYTES))
    return None
