"""The panes of the tabs. Each is imported and created when first opened: all together took half of the startup time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sandbox_console.service import Console

if TYPE_CHECKING:
    from sandbox_console.tui.detail.audit_tab import AuditPane
    from sandbox_console.tui.detail.events_tab import EventsPane
    from sandbox_console.tui.detail.inspect_tab import InspectPane
    from sandbox_console.tui.detail.processes_tab import ProcessesPane
    from sandbox_console.tui.detail.spec_tab import SpecPane
    from sandbox_console.tui.detail.stats_tab import StatsPane
    from sandbox_console.tui.egress.egress_tab import EgressPane
    from sandbox_console.tui.files.files_tab import Asking, FilesPane

    Pane: TypeAlias = (
        AuditPane | EgressPane | EventsPane | FilesPane | InspectPane | ProcessesPane | SpecPane | StatsPane
    )


def make_pane(tab: str, console: Console, consent: Asking) -> Pane:
    """Return the pane of a tab. Raises KeyError for an unknown tab."""
    match tab:
        case "spec":
            from sandbox_console.tui.detail.spec_tab import SpecPane

            return SpecPane(console, id=tab)
        case "stats":
            from sandbox_console.tui.detail.stats_tab import StatsPane

            return StatsPane(console, id=tab)
        case "processes":
            from sandbox_console.tui.detail.processes_tab import ProcessesPane

            return ProcessesPane(console, id=tab)
        case "files":
            from sandbox_console.tui.files.files_tab import FilesPane

            return FilesPane(console, consent, id=tab)
        case "egress":
            from sandbox_console.tui.egress.egress_tab import EgressPane

            return EgressPane(console, id=tab)
        case "events":
            from sandbox_console.tui.detail.events_tab import EventsPane

            return EventsPane(console, id=tab)
        case "audit":
            from sandbox_console.tui.detail.audit_tab import AuditPane

            return AuditPane(console, id=tab)
        case "inspect":
            from sandbox_console.tui.detail.inspect_tab import InspectPane

            return InspectPane(console, id=tab)
    raise KeyError(tab)
