"""A mixin of the app that opens the pages shown over the list, and writes the text of plain ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from textual.content import Content

from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import BackendHealth, Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import fixed_fields
from sandbox_console.tui.app_parts import AppParts, LoggedMessage
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.fleet.header import backend_name
from sandbox_console.tui.text.formatting import HEALTH, STYLES

_SEVERE = {"error": "$text-error", "warning": "$text-warning"}


class PageActions(AppParts):
    """Opens pages. Each is imported when it is first opened."""

    async def action_help(self) -> None:
        """Show the keys of the current page and what the selected sandbox does not allow. Not from a text page."""
        if isinstance(self.screen, TextScreen):
            return
        selected = self.main.selected if self.screen is self.main else None
        from sandbox_console.tui.help import help_words, unavailable

        here = await unavailable(self, selected) if selected else ()
        self.push_screen(TextScreen("Keys", help_words(self.screen, here)))

    async def open_form(self, sandbox: Sandbox | None) -> None:
        """Open the form, empty or for a sandbox. For another tool's, only the backend's live changes are editable."""
        from sandbox_console.tui.form.form_screen import FormScreen

        fixed: dict[str, str] = {}
        below = self.screen
        if sandbox is not None and sandbox.spec is None:
            try:
                sandbox = await self.service.inspect(sandbox.ref)  # the list may lack its limits
                fixed = fixed_fields(sandbox, await self.service.capabilities(sandbox.ref.backend, sandbox.ref.host))
            except ConsoleError as error:
                self.notify(error.message, title="edit", severity="error")
                return
        if self.screen is below:  # otherwise the user went elsewhere in the meantime
            self.push_screen(FormScreen(self.service, self.work, self.flows.consent, sandbox, fixed))

    async def open_form_of(self, sandboxes: Sequence[Sandbox], hidden: Collection[SandboxRef]) -> None:
        """Open the form of several sandboxes. ``hidden`` are those that the list does not show."""
        from sandbox_console.tui.form.several_screen import SeveralScreen

        below = self.screen
        try:  # the list may lack the limits of another tool's
            whole = [one if one.spec else await self.service.inspect(one.ref) for one in sandboxes]
        except ConsoleError as error:
            self.notify(error.message, title="edit", severity="error")
            return
        if self.screen is below:  # otherwise the user went elsewhere in the meantime
            self.push_screen(SeveralScreen(self.service, whole, hidden))

    async def open_form_from(self) -> None:
        """Open the form of a new sandbox with what a template, a sandbox, a docker run line or a file says."""
        from sandbox_console.tui.form.form_screen import FormScreen

        begin = await self.templates.begin(self.main.selected)
        if begin is not None:
            self.push_screen(FormScreen(self.service, self.work, self.flows.consent, begin=begin))

    def action_messages(self) -> None:
        """Show all messages, newest first."""
        self.push_screen(TextScreen("Messages", messages_words(reversed(self.message_log))))

    def action_backends(self) -> None:
        """Show every backend's health with the full reason."""
        self.push_screen(TextScreen("Backends", backends_words(self.fleet.health.values())))

    def action_pulse(self) -> None:
        """Show the whole fleet on one page."""
        from sandbox_console.tui.pulse.pulse_screen import PulseScreen

        self.push_screen(PulseScreen(self.service, self.history, lambda: self.fleet, self.now))

    def action_egress(self) -> None:
        """Show what was denied in the whole fleet."""
        from sandbox_console.tui.egress.inbox_screen import EgressScreen

        self.push_screen(EgressScreen(self.service, self.now))

    def action_alerts(self) -> None:
        """Show the alerts."""
        from sandbox_console.tui.alerts.alerts_screen import AlertsScreen

        self.push_screen(AlertsScreen(self.service, self.now), lambda ref: self.main.go_to(ref) if ref else None)

    def action_kept_shells(self) -> None:
        """Show the shells that outlive the console."""
        from sandbox_console.tui.shell.kept_shells_screen import KeptShellsScreen

        self.push_screen(KeptShellsScreen(self.service, self.shells, self.now))

    def action_recordings(self) -> None:
        """Show the recordings of all sandboxes."""
        self.open_recordings(None)

    def open_recordings(self, sandbox: Sandbox | None) -> None:
        """Show the recordings of a sandbox, or of all."""
        from sandbox_console.tui.recordings.recordings_screen import RecordingsScreen

        self.push_screen(RecordingsScreen(self.service, sandbox))

    def open_why(self, sandbox: Sandbox) -> None:
        """Show why a sandbox is in its state."""
        from sandbox_console.tui.incident.why_screen import WhyScreen

        self.push_screen(WhyScreen(self.service, sandbox, self.now))

    def open_timeline(self, sandboxes: Sequence[Sandbox]) -> None:
        """Show what happened to sandboxes."""
        from sandbox_console.tui.incident.timeline_screen import TimelineScreen

        go = lambda entry: self.main.show_log(*entry) if entry else None  # noqa: E731
        self.push_screen(TimelineScreen(self.service, sandboxes, self.now), go)

    def action_images(self) -> None:
        """Show the images."""
        from sandbox_console.tui.images.images_screen import ImagesScreen

        self.push_screen(ImagesScreen(self.service, self.hosts, self.now))

    def action_snapshots(self) -> None:
        """Show the snapshots of sandboxes."""
        from sandbox_console.tui.images.snapshots_screen import SnapshotsScreen

        self.push_screen(SnapshotsScreen(self.service, self.hosts, self.now))

    def action_draft(self) -> None:
        """Test egress rules on the traffic of the selected sandbox."""
        selected = self.main.selected
        self.egress.draft([selected] if selected else [])

    def action_bulk(self) -> None:
        """Show the results of the last action on several sandboxes."""
        self.bulk.show()

    def action_audit(self) -> None:
        """Show the audit log of the whole fleet."""
        from sandbox_console.tui.audit.audit_screen import AuditScreen

        self.push_screen(AuditScreen(self.service, self.now), lambda ref: self.main.go_to(ref) if ref else None)


def messages_words(message_log: Iterable[LoggedMessage]) -> Content:
    """Return messages with their time of day."""
    parts: list[tuple[str, str]] = []
    for at, severity, text in message_log:
        parts.append((f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}  ", "$dim"))
        parts.append((f"{' '.join(map(clean, text.splitlines()))}\n", _SEVERE.get(severity, "")))
    return Content.assemble(*parts or [("None yet.", "$dim")])


def backends_words(backends: Iterable[BackendHealth]) -> Content:
    """Return each backend with its reason and hint."""
    parts: list[tuple[str, str]] = []
    for health in backends:
        glyph, style = HEALTH[health.state]
        parts += [(f"{glyph} {backend_name(health)}  ", "bold"), (f"{health.state}  ", STYLES[style])]
        parts.append((f"{clean(health.version)}\n", "$dim"))
        parts += [(f"    {clean(text)}\n", "") for text in (health.reason, health.hint) if text]
    return Content.assemble(*parts or [("None.", "")])
