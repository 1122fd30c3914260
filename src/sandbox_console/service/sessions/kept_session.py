"""A session with a kept shell. Closing it detaches: the shell goes on in its holder."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from sandbox_console.model.action import OpenShell
from sandbox_console.model.sandbox import Exit
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.reads.recordings import Recordings
from sandbox_console.service.sessions.held_terminal import DETACHED, HeldTerminal
from sandbox_console.service.sessions.shell import OnEnd, ShellSession


class KeptSession(ShellSession):
    """A `ShellSession` whose recording, end and time limit are its holder's."""

    answers_itself = True

    def __init__(
        self, request: OpenShell, audit_id: int, terminal: HeldTerminal, redactor: Redactor, on_end: OnEnd,
        recordings: Recordings, id_: str, name: str, end: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        super().__init__(request, audit_id, terminal, redactor, on_end, None, recordings)
        self.kept, self.id = name, id_
        self._held, self._end = terminal, end

    @property
    def recorded(self) -> bool:
        return self._held.recorded

    @property
    def read_only(self) -> bool:
        """Whether this viewer only watches."""
        return self._held.read_only

    async def end(self) -> None:
        """End the shell for every viewer, and wait until its end is on record."""
        await self._end()

    def _how(self, ended: Exit) -> dict[str, Any]:
        detached = ended.reason == DETACHED
        return {"shell_name": self.kept, "viewer": DETACHED if detached else "the shell ended"}
