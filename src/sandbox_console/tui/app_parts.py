"""The parts of the app. Each flow is created when it is first used: none is needed at the start."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from textual.css.query import NoMatches
from textual.notifications import SeverityLevel

from sandbox_console.model.action import Action
from sandbox_console.model.alert import Alert
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.service import Consent
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.fleet.arrangement import fault
from sandbox_console.tui.main.main_screen import MainScreen
from sandbox_console.tui.pulse.history import History
from sandbox_console.tui.state.fleet_state import News
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.state.reducer import reduce
from sandbox_console.tui.text.formatting import many, span

if TYPE_CHECKING:
    from sandbox_console.tui.actions.action_flow import Flows
    from sandbox_console.tui.alerts.alert_watch import AlertWatch
    from sandbox_console.tui.bulk.bulk_flow import BulkFlow
    from sandbox_console.tui.egress.egress_flow import EgressFlow
    from sandbox_console.tui.form.template_flow import TemplateFlow
    from sandbox_console.tui.forward.forward_flow import ForwardFlow
    from sandbox_console.tui.images.image_flow import HostFlow
    from sandbox_console.tui.shell.shell_flow import ShellFlow

_SEVERITIES = ("info", "warning", "critical")
AWAY_S = 10.0
"""A page that is back sooner has only been reloaded."""

LoggedMessage = tuple[float, str, str]
"""The time (Unix seconds), the severity, and the message."""


class AppParts(BaseApp):
    """The main screen, the actions in flight, the fleet's history, the messages, and the flows."""

    main: MainScreen
    work: Work
    history: History
    message_log: deque[LoggedMessage]
    _faults_told = 0

    @property
    def selected(self) -> Sandbox | None:
        return self.main.selected

    def alert_watch(self) -> AlertWatch:
        """Make what follows the alerts, and runs the rules."""
        from sandbox_console.tui.alerts.alert_watch import AlertWatch

        return AlertWatch(self.service, self.publish, self._alerts_fired, self.write_to_terminal)

    def _alerts_fired(self, begun: Sequence[Alert]) -> None:
        """Ring the bell, and show the worst of the alerts that began to fire."""
        first = max(begun, key=lambda alert: _SEVERITIES.index(alert.severity))
        more = f" (and {len(begun) - 1} more)" if len(begun) > 1 else ""
        severity: SeverityLevel = "error" if first.severity == "critical" else "warning"
        self.bell()
        self.notify(f"{first.name}: {first.text}{more}", title=f"alert {first.rule}", severity=severity, timeout=15)

    def came_back(self, away_s: float) -> None:
        """Say what a browser has missed that shows this app again after ``away_s`` seconds."""
        missed = sum(at > self.now() - away_s for at, _, _ in self.message_log)
        if missed or away_s >= AWAY_S:
            words = f"{many(missed, 'message')} meanwhile. :messages shows them." if missed else ""
            self.notify(words or "No message came meanwhile.", title=f"not shown for {span(away_s)}")

    def take_upload(self, path: str) -> None:
        """Ask where a file goes that a browser has sent."""
        from sandbox_console.tui.files.browser_upload import take_upload
        from sandbox_console.tui.files.files_tab import FilesPane

        panes = self.main.query(FilesPane)
        self.run_worker(take_upload(self, Path(path), panes.first().path if panes else ""), group="upload")

    def tell_faults(self) -> None:
        """Let the title of a browser's page say how many sandboxes have a fault, and how many alerts fire."""
        tell = getattr(self._driver, "tell_faults", None)
        count = sum(fault(sandbox, self.fleet) for sandbox in self.fleet.sandboxes.values())
        count += len(self.fleet.alerts.firing)
        if tell is not None and count != self._faults_told:
            self._faults_told = count
            tell(count)

    def publish(self, *news: News) -> None:
        """Apply news to the state. Several items passed together are drawn once."""
        if self.is_running:
            self.fleet = reduce(self.fleet, news)

    async def agreed(self, action: Action, sandbox: Sandbox) -> Consent | None:
        answer: asyncio.Future[Consent | None] = asyncio.get_running_loop().create_future()
        self.run_worker(self._agree(action, sandbox, answer))  # a worker of the app, as the pane may stop waiting
        return await answer

    async def _agree(self, action: Action, sandbox: Sandbox, answer: asyncio.Future[Consent | None]) -> None:
        consent: Consent | None = None
        try:
            consent = await self.flows.consent(action, sandbox, confirmed=True)
        finally:
            if not answer.done():
                answer.set_result(consent)

    def _drop_marks(self, refs: Iterable[SandboxRef]) -> None:
        with contextlib.suppress(NoMatches):  # the app is closing
            self.main.table.drop_marks(refs)

    @cached_property
    def flows(self) -> Flows:
        """Actions on one sandbox, with their questions."""
        from sandbox_console.tui.actions.action_flow import Flows

        return Flows(self, self.service, self.work)

    @cached_property
    def shells(self) -> ShellFlow:
        """Opens shells, and attaches to main processes."""
        from sandbox_console.tui.shell.shell_flow import ShellFlow

        return ShellFlow(self, self.service, self.flows, self._running_sandboxes)

    def _running_sandboxes(self) -> list[Sandbox]:
        return [sandbox for sandbox in self.fleet.sandboxes.values() if sandbox.status is Status.RUNNING]

    @cached_property
    def forwards(self) -> ForwardFlow:
        """Forwards ports of sandboxes to this machine while the app runs."""
        from sandbox_console.tui.forward.forward_flow import ForwardFlow

        return ForwardFlow(self, self.service, self.flows, self.publish)

    @cached_property
    def egress(self) -> EgressFlow:
        """Actions on egress rules."""
        from sandbox_console.tui.egress.egress_flow import EgressFlow

        return EgressFlow(self, self.service, self.work, self.flows, self.now)

    @cached_property
    def templates(self) -> TemplateFlow:
        """Keeps templates, and begins the form from them."""
        from sandbox_console.tui.form.template_flow import TemplateFlow

        return TemplateFlow(self, self.service)

    @cached_property
    def bulk(self) -> BulkFlow:
        """Actions on marked sandboxes."""
        from sandbox_console.tui.bulk.bulk_flow import BulkFlow

        return BulkFlow(self, self.service, self.work, self._drop_marks)

    @cached_property
    def hosts(self) -> HostFlow:
        """Actions on the backends' images and snapshots."""
        from sandbox_console.tui.images.image_flow import HostFlow

        return HostFlow(self, self.service, self.work, self.now)
