"""The pages that keys open over the list, and the words of those that only tell; mixed into the app."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from textual.content import Content
from textual.message_pump import MessagePump

from sandbox_console.model.sandbox import BackendHealth
from sandbox_console.model.text import clean
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.fleet.header import backend_name
from sandbox_console.tui.help import help_words, unavailable
from sandbox_console.tui.text.formatting import HEALTH, STYLES

if TYPE_CHECKING:
    from sandbox_console.tui.app import ConsoleApp

Told = tuple[float, str, str]
"""When (Unix seconds), how severe, and the message."""
_SEVERE = {"error": "$text-error", "warning": "$text-warning"}


class PageActions(MessagePump):
    """Opens pages; each is imported when it is asked for."""

    @property
    def _app(self) -> ConsoleApp:
        app: ConsoleApp = self  # type: ignore[assignment]
        return app

    async def action_help(self) -> None:
        """The keys that work here, and what does not work on the selected sandbox."""
        app = self._app
        selected = app.main.selected if app.screen is app.main else None
        here = await unavailable(app, selected) if selected else ()
        app.push_screen(TextScreen("Keys that work here", help_words(app.screen, here)))

    def action_messages(self) -> None:
        """Everything that was told, newest first."""
        self._app.push_screen(TextScreen("Messages", messages_words(reversed(self._app.told))))

    def action_backends(self) -> None:
        """Every backend's health with its reason in full."""
        self._app.push_screen(TextScreen("Backends", backends_words(self._app.fleet.health.values())))

    def action_pulse(self) -> None:
        """The whole fleet on one page."""
        from sandbox_console.tui.pulse.pulse_screen import PulseScreen

        app = self._app
        app.push_screen(PulseScreen(app.service, app.history, lambda: app.fleet, app.now))

    def action_egress(self) -> None:
        """What was denied in the whole fleet."""
        from sandbox_console.tui.egress.inbox_screen import EgressScreen

        self._app.push_screen(EgressScreen(self._app.service, self._app.now))

    def action_images(self) -> None:
        """What sandboxes are made of."""
        from sandbox_console.tui.images.images_screen import ImagesScreen

        self._app.push_screen(ImagesScreen(self._app.service, self._app.hosts, self._app.now))

    def action_snapshots(self) -> None:
        """Saved states of sandboxes."""
        from sandbox_console.tui.images.snapshots_screen import SnapshotsScreen

        self._app.push_screen(SnapshotsScreen(self._app.service, self._app.hosts, self._app.now))

    def action_draft(self) -> None:
        """Try egress rules on what the selected sandbox asked for."""
        selected = self._app.main.selected
        self._app.egress.draft([selected] if selected else [])

    def action_bulk(self) -> None:
        """What became of the last action on several."""
        self._app.bulk.show()

    def action_audit(self) -> None:
        """Everything that was done, in the whole fleet."""
        from sandbox_console.tui.audit.audit_screen import AuditScreen

        app = self._app
        app.push_screen(AuditScreen(app.service, app.now), lambda ref: app.main.go_to(ref) if ref else None)


def messages_words(told: Iterable[Told]) -> Content:
    """Messages with their time of day."""
    parts: list[tuple[str, str]] = []
    for at, severity, text in told:
        parts.append((f"{datetime.fromtimestamp(at).astimezone():%H:%M:%S}  ", "$dim"))
        parts.append((f"{' '.join(map(clean, text.splitlines()))}\n", _SEVERE.get(severity, "")))
    return Content.assemble(*parts or [("None yet.", "$dim")])


def backends_words(backends: Iterable[BackendHealth]) -> Content:
    """Each backend with its reason and hint."""
    parts: list[tuple[str, str]] = []
    for health in backends:
        glyph, style = HEALTH[health.state]
        parts += [(f"{glyph} {backend_name(health)}  ", "bold"), (f"{health.state}  ", STYLES[style])]
        parts.append((f"{clean(health.version)}\n", "$dim"))
        parts += [(f"    {clean(text)}\n", "") for text in (health.reason, health.hint) if text]
    return Content.assemble(*parts or [("None.", "")])
