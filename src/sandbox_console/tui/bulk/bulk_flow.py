"""Runs an action on all marked rows: one question, one run, and a results page that is kept until the app ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Console
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.bulk.bulk_run import BulkRun, ItemOutcome, plan, summary
from sandbox_console.tui.bulk.results_screen import BulkConfirm, BulkScreen
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.state.messages import BulkRequested
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.state.verbs import Verb
from sandbox_console.tui.text.formatting import many, shown_name

_NAMED = 5
DropMarks = Callable[[Iterable[SandboxRef]], None]


class BulkFlow:
    """The app owns each run, so leaving its page does not stop it."""

    def __init__(self, app: BaseApp, console: Console, work: Work, drop_marks: DropMarks) -> None:
        self._app = app
        self._console = console
        self._work = work
        self._drop_marks = drop_marks
        self._tasks: set[asyncio.Task[None]] = set()
        self.runs: list[BulkRun] = []

    async def ask(self, asked: BulkRequested) -> None:
        """List what is affected, request confirmation once, and start."""
        items = await plan(self._console, asked.verb, asked.sandboxes, self._app.fleet.busy, asked.hidden)
        question = BulkConfirm(asked.verb, items, self._console.masking.action)
        if not await self._app.push_screen_wait(question):
            return
        for item in items:
            item.first = item.keep if question.keeps and item.to_do else None
        asked.agreed()
        run = BulkRun(asked.verb, items, self._console, self._work)
        self.runs = [*[bulk_run for bulk_run in self.runs if not bulk_run.done], run]
        task = asyncio.create_task(self._run(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.show()

    def show(self) -> None:
        """Open the page of the last run."""
        if not self.runs:
            marks = hint(self._app, "mark", "marks")
            self._app.notify(": ".join(filter(None, ("No action on several sandboxes has run yet", marks))) + ".")
            return
        self._app.push_screen(BulkScreen(self.runs[-1], self._console, self._ask_again))

    def _ask_again(self, verb: Verb, sandboxes: Sequence[Sandbox]) -> None:
        now = self._app.fleet.sandboxes
        there = [now[sandbox.ref] for sandbox in sandboxes if sandbox.ref in now]
        self._app.post_message(BulkRequested(verb, there))

    async def _run(self, run: BulkRun) -> None:
        await run.run()
        self._drop_marks(item.sandbox.ref for item in run.with_fate(ItemOutcome.OK))
        shown = isinstance(self._app.screen, BulkScreen) and self._app.screen.run_shown is run
        if not shown:
            self.runs.sort(key=lambda bulk_run: bulk_run is run)  # the key shows the run that is reported here
            good = not run.with_fate(
                ItemOutcome.FAILED, ItemOutcome.DENIED, ItemOutcome.UNSUPPORTED, ItemOutcome.UNKNOWN
            )
            severity = "information" if good else "warning"
            each = hint(self._app, "bulk-results", "shows each.")
            self._app.notify(f"{summary(run)}. {each}".rstrip(), title=f"{run.verb.name} {many(len(run.items))}",
                             severity=severity, timeout=None if good else 15)  # type: ignore[arg-type] # fmt: skip

    def leaving(self) -> list[str]:
        """Return what quitting now would do to unfinished runs, or an empty list if there are none."""
        return [line for run in self.runs if not run.done for line in _leaving(run)]

    def leave(self) -> str:
        """Start nothing more in any run. Returns the text of `leaving`, to be read in the terminal afterwards."""
        question = self.leaving()
        for run in self.runs:
            run.stop()
        return "\n".join(question)

    async def close(self) -> None:
        """Stop following. The console cancels what is in flight; what waits is never started."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _leaving(run: BulkRun) -> list[str]:
    going, waiting = run.with_fate(ItemOutcome.RUNNING), run.with_fate(ItemOutcome.WAITING)
    names = ", ".join(shown_name(item.sandbox) for item in going[:_NAMED])
    more = f" and {len(going) - _NAMED} more" if len(going) > _NAMED else ""
    lines = [f"{run.verb.name} {many(len(run.items))}: {summary(run)}."]
    if going:
        lines.append(f"  In flight, cancelled and recorded as cancelled: {names}{more}")
    return [*lines, f"  Not started: {len(waiting)}"] if waiting else lines
