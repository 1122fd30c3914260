"""The actions on a feed's hosts, used in a sandbox's tab and in the inbox."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widget import Widget

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Feed, HostSeen
from sandbox_console.tui.state.messages import DraftRequested, EgressRequested
from sandbox_console.tui.widgets.table.table import FleetTable


class HostActions(Widget):
    """A mixin for widgets that show a feed in a FleetTable whose keys are hosts."""

    _denied_only: bool

    @property
    def _feed(self) -> Feed:
        """The feed of the hosts to show."""
        raise NotImplementedError

    def _askers(self, host: HostSeen | None) -> Sequence[Sandbox]:
        """Return the sandboxes that a change for this host applies to. ``host`` is None if no host is selected."""
        raise NotImplementedError

    def _draw(self) -> None:
        raise NotImplementedError

    def action_denials(self) -> None:
        """Show only denials, or everything."""
        self._denied_only = not self._denied_only
        self._draw()

    def action_allow(self) -> None:
        """Allow the host under the cursor for the sandboxes that requested it."""
        self._ask(allow=True)

    def action_deny(self) -> None:
        """Deny the host under the cursor for the sandboxes that requested it."""
        self._ask(allow=False)

    def action_draft(self) -> None:
        """Test rules on recorded traffic, for a sandbox that requested the host under the cursor."""
        self.post_message(DraftRequested(tuple(self._askers(self._chosen))))

    def on_fleet_table_chosen(self, event: FleetTable.Chosen) -> None:
        event.stop()
        self._ask(allow=True)

    @property
    def _chosen(self) -> HostSeen | None:
        """The host under the cursor."""
        key = self.query_one(FleetTable).cursor_key
        return next((host for host in self._feed.hosts() if host.host == key), None)

    def _ask(self, *, allow: bool) -> None:
        host = self._chosen
        if host is None:
            self.notify("No host is selected.", severity="warning")
        elif sandboxes := self._askers(host):
            self.post_message(EgressRequested(host.host, host.port, tuple(sandboxes), allow=allow))
