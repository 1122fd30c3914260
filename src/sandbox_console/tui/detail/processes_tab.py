"""The processes in the selected sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.guest import GuestProcess
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.detail.follows_sandbox import FollowsSandbox
from sandbox_console.tui.text.formatting import DASH, error_words, size, span
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column

BEAT_S = 2.0
DEPTH = 12
COLUMNS = (
    Column("pid", "PID", 7, 9, align="right", priority=0),
    Column("user", "USER", 6, 14, priority=2),
    Column("cpu", "TIME", 6, 8, align="right", priority=1),
    Column("memory", "MEM", 6, 8, align="right", priority=1),
    Column("state", "STATE", 8, 12, priority=3),
    Column("command", "COMMAND", 20, 400, priority=0, flex=True),
)


class ProcessesPane(Vertical, FollowsSandbox):
    """The processes as a tree, updated every two seconds while the tab is open."""

    DEFAULT_CSS = """
    ProcessesPane { height: 1fr; }
    ProcessesPane > #processes-note { height: auto; padding: 0 1; color: $text-muted; display: none; }
    ProcessesPane > #processes-note.-on { display: block; }
    """

    NOTE = "#processes-note"

    def __init__(self, console: Console, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console

    def compose(self) -> ComposeResult:
        yield Static(id="processes-note")
        yield FleetTable(COLUMNS, id="processes-table")

    def begin(self, sandbox: Sandbox) -> Coroutine[None, None, None] | None:
        """Read a sandbox's processes repeatedly, while it has any."""
        self._fill(())
        if sandbox.status not in (Status.RUNNING, Status.PAUSED):
            self._note(f"It is {sandbox.status}: it has no processes.")
            return None
        self._note("Asking…")
        return self._follow(sandbox)

    async def _follow(self, sandbox: Sandbox) -> None:
        while True:
            try:
                processes = await self._service.inside.processes(sandbox.ref)
            except ConsoleError as error:
                self._fill(())
                self._note(f"✕ {error_words(error)}")
                return
            self._note("" if processes else "No processes are reported.")
            self._fill(processes)
            await asyncio.sleep(BEAT_S)

    def _fill(self, processes: Sequence[GuestProcess]) -> None:
        for table in self.query(FleetTable):
            table.set_rows([_row(process, depth) for process, depth in as_tree(processes)])


def as_tree(processes: Sequence[GuestProcess]) -> list[tuple[GuestProcess, int]]:
    """Return each process after its parent, with its depth. A guest's parents may form no tree: each is listed once."""
    known = {process.pid for process in processes}
    children: dict[int | None, list[GuestProcess]] = {}
    for process in sorted(processes, key=lambda guest_process: guest_process.pid):
        parent = process.parent if process.parent in known and process.parent != process.pid else None
        children.setdefault(parent, []).append(process)
    rows: dict[int, tuple[GuestProcess, int]] = {}
    waiting = [(process, 0) for process in reversed(children.get(None, []))]
    while waiting:
        process, depth = waiting.pop()
        if process.pid not in rows:
            rows[process.pid] = (process, depth)
            waiting += [(child, depth + 1) for child in reversed(children.get(process.pid, []))]
    for process in processes:  # a cycle of parents
        rows.setdefault(process.pid, (process, 0))
    return list(rows.values())


def _row(process: GuestProcess, depth: int) -> Row:
    indent = "  " * (min(depth, DEPTH) - 1) + "└ " if depth else ""
    cells = (
        str(process.pid),
        clean(process.user, cap=100) or DASH,
        DASH if process.cpu_s is None else span(process.cpu_s),
        size(process.memory_bytes),
        clean(process.state, cap=40),
        indent + clean(process.command, cap=2000),
    )
    return Row(process.pid, cells, ("", "dim", "", "", "dim", ""))
