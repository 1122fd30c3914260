"""Starts the holders of kept shells, finds them again, attaches to them and ends them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import structs

from sandbox_console.backends.base import PassableTerminal, PassedShell, Terminal
from sandbox_console.background_process import ProcessFolder, start_detached
from sandbox_console.errors import Ambiguous, BackendError, Conflict, NotFound, Unsupported
from sandbox_console.model.action import OpenShell
from sandbox_console.model.kept_shell import KeptShell, Viewer, free_name
from sandbox_console.model.sandbox import SandboxRef, parse_ref
from sandbox_console.recording.writer import Writer
from sandbox_console.secrets.redactor import Redactor
from sandbox_console.service.config import ShellOptions
from sandbox_console.service.reads.visible_records import VisibleRecords
from sandbox_console.service.sessions.held_terminal import HeldTerminal
from sandbox_console.service.sessions.lost_shells import LostShells
from sandbox_console.service.sessions.shell_records import HeldRecord, ShellRecord, ShellRecords
from sandbox_console.shell_holder.frames import ASK, END, HEAD, MOST_TYPED, STATE, Frames, frame

START_S = 15.0
"""How long a holder may take to answer. Its imports take 0.2 s on an idle machine."""

ANSWER_S = 2.0
END_S = 20.0
"""How long a shell's end may take, with the command that records it."""

_LS = "sandbox-console shells ls"


class KeptShells:
    """The kept shells of one state folder, whichever console opened them."""

    def __init__(
        self, records: ShellRecords, shell: ShellOptions, lost: LostShells, actor: str, options: Sequence[str],
        visible: VisibleRecords,
    ) -> None:  # fmt: skip
        """``options`` are those of the command line by which another process finds the same configuration."""
        self.options, self._records, self._lost, self._actor = shell, records, lost, actor
        self._options = list(options)
        self._visible = visible

    async def list(self) -> list[KeptShell]:
        """All of sandboxes that whoever asks may see, the oldest first, each asked for its state."""
        found = await asyncio.to_thread(lambda: list(self._records.kept()))
        shells = await asyncio.gather(*(asyncio.to_thread(self._look, id_, one) for id_, one in found))
        there = await self._visible.of_sandboxes((one for one in shells if one is not None), lambda one: one.ref)
        return sorted(there, key=lambda one: one.began)

    async def find(self, name: str) -> KeptShell:
        """The one with this name or id. Raises NotFound, Ambiguous."""
        shells = [shell for shell in await self.list() if name in (shell.name, shell.id)]
        if not shells:
            raise NotFound(f"no kept shell is called {name!r}", hint=_LS)
        if len(shells) > 1:
            raise Ambiguous(
                f"{len(shells)} kept shells are called {name!r}",
                [shell.id for shell in shells],
                hint="give the id instead",
            )
        return shells[0]

    async def of(self, ref: SandboxRef) -> Sequence[KeptShell]:
        """The kept shells of one sandbox, the oldest first."""
        return [shell for shell in await self.list() if shell.ref == ref]

    async def end_all(self, ref: SandboxRef) -> int:
        """End those of a sandbox that is put into quarantine. Returns how many there were."""
        shells = await self.of(ref)
        await asyncio.gather(*(self.end(shell, self._actor, "quarantine") for shell in shells), return_exceptions=True)
        return len(shells)

    def name_for(self, wanted: str, sandbox: str) -> str:
        """A name for a new one. Raises Conflict if the wanted one is taken. Blocks."""
        taken = {record.kept for _, record in self._records.kept()}
        if wanted in taken:
            raise Conflict(f"a kept shell is called {wanted!r} already", hint=f"{_LS}; or choose another name")
        return wanted or free_name(sandbox, taken)

    async def start(
        self, held_record: HeldRecord, record: ShellRecord, passed: PassedShell, request: OpenShell, redactor: Redactor,
        recorder: Writer | None, *, must_record: bool,
    ) -> HeldTerminal:  # fmt: skip
        """Start the holder of a shell, and attach to it. Raises BackendError if it does not start."""
        facts = msgspec.to_builtins(passed) | {
            "id": held_record.id, "lock": held_record.lock, "record": msgspec.to_builtins(record),
            "options": self._options,
            "cols": request.cols, "rows": request.rows, "scrollback_bytes": self.options.scrollback_mib << 20,
            "max_duration_s": self.options.max_duration_s, "redactor": redactor.state(),
            "recording": _recording(recorder, required=must_record),
        }  # fmt: skip
        pid = await asyncio.to_thread(_start, str(self._records.folder), facts)
        try:
            connection = await asyncio.to_thread(self._answer, held_record.id, pid)
            return await HeldTerminal.attach(connection, record.actor, request.cols, request.rows, read_only=False)
        except BaseException:
            with suppress(ProcessLookupError):
                os.kill(pid, 9)  # the caller ends the shell
            raise

    async def attach(self, shell: KeptShell, request: OpenShell, actor: str) -> HeldTerminal:
        """Attach to one. Raises NotFound if it has ended meanwhile, Conflict if it refuses."""
        connection = await asyncio.to_thread(self._connect, shell.id)
        if connection is None:
            raise NotFound(f"the kept shell {shell.name} does not answer", hint=_LS)
        return await HeldTerminal.attach(connection, actor, request.cols, request.rows, read_only=request.read_only)

    async def end(self, shell: KeptShell, actor: str, reason: str) -> None:
        """End one, and wait until its end is on record. Raises BackendError if that takes too long."""
        await asyncio.to_thread(self._ask_to_end, shell.id, actor, reason)
        if not await self.recorded(shell.id):
            raise BackendError(
                f"the end of {shell.name} is not on record yet",
                hint="a later console records it: sandbox-console doctor",
            )

    async def recorded(self, id_: str) -> bool:
        """Record the end of one that has ended, once its holder is gone. Returns whether it is on record."""
        deadline = time.monotonic() + END_S
        while time.monotonic() < deadline:
            await self._lost.end(id_)
            if not await asyncio.to_thread(lambda: any(one == id_ for one, _ in self._records.kept())):
                return True
            await asyncio.sleep(0.05)
        return False

    def _look(self, id_: str, record: ShellRecord) -> KeptShell | None:
        try:
            ref = parse_ref(record.ref)
        except ValueError:
            return None
        shell = KeptShell(
            id=id_, name=record.kept, ref=ref, sandbox=record.name, actor=record.actor, began=record.began,
            audit_id=record.audit_id,
        )  # fmt: skip
        state = self._state(id_)
        return shell if state is None else _with_state(shell, state)

    def _state(self, id_: str) -> Mapping[str, Any] | None:
        connection = self._connect(id_)
        if connection is None:
            return None
        with connection, suppress(OSError, ValueError):
            connection.sendall(frame(ASK))
            frames = Frames(MOST_TYPED)
            while data := connection.recv(MOST_TYPED):
                for kind, body in frames.feed(data):
                    if kind == STATE:
                        found = json.loads(body)
                        return found if isinstance(found, dict) else None
        return None

    def _ask_to_end(self, id_: str, actor: str, reason: str) -> None:
        connection = self._connect(id_)
        if connection is not None:
            with connection, suppress(OSError):
                connection.sendall(frame(END, json.dumps({"actor": actor, "reason": reason}).encode()))
                connection.recv(HEAD.size)  # it closes when it has ended

    def _connect(self, id_: str) -> socket.socket | None:
        try:
            process_folder = ProcessFolder(str(self._records.folder))
        except OSError:
            return None
        try:
            return process_folder.connect(id_, ANSWER_S)
        finally:
            process_folder.close()

    def _answer(self, id_: str, pid: int) -> socket.socket:
        """Wait for a holder that was started. Raises BackendError if it ends or does not answer."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if (sock := self._connect(id_)) is not None:
                return sock
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    raise BackendError(
                        "the shell cannot be kept: its holder ended at once", hint="open it without --keep"
                    )
            time.sleep(0.02)
        raise BackendError(f"the shell cannot be kept: its holder did not answer within {START_S:g} s")


def _start(folder: str, facts: dict[str, Any]) -> int:
    memory = os.memfd_create("shell")
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(json.dumps(facts).encode())
        os.lseek(memory, 0, os.SEEK_SET)
        command = [sys.executable, "-P", "-m", "sandbox_console", "shell-holder", folder]
        return start_detached(command, dict(os.environ), keep=[*facts["files"], facts["lock"]], held=memory)
    finally:
        os.close(memory)


def _recording(recorder: Writer | None, *, required: bool) -> dict[str, Any] | None:
    if recorder is None:
        return None
    pending = recorder.pending
    return {"path": str(recorder.path), "began": pending.began, "cap_bytes": pending.left, "required": required}


def _with_state(shell: KeptShell, state: Mapping[str, Any]) -> KeptShell:
    return structs.replace(
        shell, answers=True, pid=int(state["pid"]), cols=int(state["cols"]), rows=int(state["rows"]),
        recorded=bool(state["recorded"]), left_s=float(state["left_s"]), bytes_in=int(state["bytes"]["in"]),
        bytes_out=int(state["bytes"]["out"]),
        viewers=tuple(Viewer(str(one["actor"]), bool(one["read_only"])) for one in state["viewers"]),
    )  # fmt: skip


def passed_on(record: HeldRecord | None, terminal: Terminal) -> tuple[HeldRecord, PassedShell]:
    """The record and the shell that its holder gets. Raises BackendError, Unsupported."""
    if record is None:
        raise BackendError("the shell cannot be kept: its record cannot be written", hint="free some space")
    if not isinstance(terminal, PassableTerminal):
        raise Unsupported("the shell cannot be kept: the backend cannot pass it on")
    return record, terminal.passed()
