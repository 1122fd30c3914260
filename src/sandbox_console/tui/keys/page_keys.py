"""The keys inside logs, tabs and pages: each has an id, ``logs-wrap``, by which the config gives it another key."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from textual.binding import Binding, BindingType

SCOPES = ("logs", "spec", "inspect", "files", "hosts", "draft", "columns", "form", "pulse", "results", "audit",
          "images", "snapshots")  # fmt: skip
_TABLES = {"files", "hosts", "draft", "results", "audit", "images", "snapshots"}


def scoped(scope: str, bindings: Iterable[BindingType]) -> list[BindingType]:
    """Bindings with the ids of a scope, by what they do; of two that do the same the second keeps its key for good."""
    found: list[BindingType] = []
    used: set[str] = set()
    for one in bindings:
        if isinstance(one, Binding) and one.description:
            name = f"{scope}-{re.sub(r'[^a-z0-9]+', '-', one.description.lower()).strip('-')}"
            found.append(one if name in used else dataclasses.replace(one, id=name))
            used.add(name)
        else:
            found.append(one)
    return found


def scope_of(action: str) -> str:
    """The scope of an action's id; empty for one of the list."""
    return next((scope for scope in SCOPES if action.startswith(f"{scope}-")), "")


def bindings_of(scope: str) -> Sequence[BindingType]:
    """The bindings of a scope, imported only when they are asked for: the start needs none of them."""
    match scope:
        case "logs":
            from sandbox_console.tui.widgets.log.log_keys import LOG_KEYS

            return LOG_KEYS
        case "spec":
            from sandbox_console.tui.detail.spec_tab import SpecPane

            return SpecPane.BINDINGS
        case "inspect":
            from sandbox_console.tui.detail.inspect_tab import InspectPane

            return InspectPane.BINDINGS
        case "files":
            from sandbox_console.tui.files.files_tab import FilesPane

            return FilesPane.BINDINGS
        case "hosts":
            from sandbox_console.tui.egress.host_actions import HOST_KEYS

            return HOST_KEYS
        case _:
            return _of_screen(scope)


def _of_screen(scope: str) -> Sequence[BindingType]:
    match scope:
        case "draft":
            from sandbox_console.tui.egress.draft_screen import EgressDraftScreen

            return EgressDraftScreen.BINDINGS
        case "columns":
            from sandbox_console.tui.fleet.columns_screen import ColumnsScreen

            return ColumnsScreen.BINDINGS
        case "form":
            from sandbox_console.tui.form.form_screen import FormScreen

            return FormScreen.BINDINGS
        case "pulse":
            from sandbox_console.tui.pulse.pulse_screen import PulseScreen

            return PulseScreen.BINDINGS
        case "results":
            from sandbox_console.tui.bulk.results_screen import BulkScreen

            return BulkScreen.BINDINGS
        case "audit":
            from sandbox_console.tui.audit.audit_screen import AuditScreen

            return AuditScreen.BINDINGS
        case "images":
            from sandbox_console.tui.images.images_screen import ImagesScreen

            return ImagesScreen.BINDINGS
        case "snapshots":
            from sandbox_console.tui.images.snapshots_screen import SnapshotsScreen

            return SnapshotsScreen.BINDINGS
    raise KeyError(scope)


def named(scope: str) -> Iterator[Binding]:
    """The bindings of a scope that a config can change."""
    for binding in bindings_of(scope):
        if isinstance(binding, Binding) and binding.id:
            yield binding


def taken(scope: str) -> dict[str, str]:
    """Keys of a scope that stay: those without an id, and those that what is in it takes first."""
    from textual.widgets import Tree

    from sandbox_console.tui.widgets.table.table import FleetTable

    fixed = [one for one in bindings_of(scope) if isinstance(one, Binding) and not one.id]
    found = {key: one.description or one.action for one in fixed for key in one.key.split(",")}
    within = FleetTable if scope in _TABLES else Tree if scope == "inspect" else None
    for one in within.BINDINGS if within else ():
        if isinstance(one, Binding):
            found |= dict.fromkeys(one.key.split(","), f"moving about ({one.description})")
    return found
