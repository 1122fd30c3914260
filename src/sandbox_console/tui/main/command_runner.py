"""Runs the commands of the ``:`` line."""

from __future__ import annotations

from textual.content import Content

from sandbox_console.errors import UsageError
from sandbox_console.model.text import clean
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.fleet.columns import choose, column_key
from sandbox_console.tui.fleet.command_parser import Command, filter_of, help_lines, parse_command
from sandbox_console.tui.fleet.filter.filter_parser import parse_filter
from sandbox_console.tui.fleet.groups import group_by
from sandbox_console.tui.fleet.saved_views import Views
from sandbox_console.tui.main.main_base import MainBase
from sandbox_console.tui.widgets.table.table_layout import fit_cell

_ACTIONS = {
    "audit": "app.audit", "egress": "app.egress", "images": "app.images", "snapshots": "app.snapshots",
    "pulse": "app.pulse", "backends": "app.backends",
    "alerts": "app.alerts", "recordings": "app.recordings", "why": "why", "timeline": "timeline", "loudest": "loudest",
    "kept": "app.kept_shells", "messages": "app.messages", "quit": "app.quit", "new": "create", "wide": "wide",
    "faults": "faults", "managed": "managed",
}  # fmt: skip


async def run(screen: MainBase, line: str) -> None:
    """Run a command. Raises UsageError, and then nothing has changed."""
    fleet = screen.fleet
    command = parse_command(line, fleet.known(screen.state))
    if command.name in _ACTIONS:
        await screen.run_action(_ACTIONS[command.name])
    elif command == Command("columns"):
        await screen.run_action("columns")
    elif command.name in ("filter", "state", "backend", "host", "image", "maker", "label"):
        parse_filter(text := filter_of(command))
        fleet.set_filter(text)
    elif command.name == "help":
        screen.app.push_screen(TextScreen("Commands", command_help()))
    elif command.name == "views":
        screen.app.push_screen(TextScreen("Views", views_words(fleet.views)))
    else:
        _arrange(screen, command)


def _arrange(screen: MainBase, command: Command) -> None:
    fleet = screen.fleet
    match command:
        case Command("all"):
            fleet.reset()
        case Command("group", by):
            fleet.set_group(group_by(by))
        case Command("sort", word):
            fleet.set_sort("" if word == "none" else f"{'-' * word.startswith('-')}{column_key(word.lstrip('-'))}")
        case Command("columns", names):
            fleet.set_columns(choose(names.replace(",", " ").split()))
        case Command("view", name):
            fleet.set_view(name)
        case Command("save", name):
            _save(screen, name)
        case Command("forget", name):
            fleet.views.forget(name)
            screen.notify(f"View {name} is removed.")


def _save(screen: MainBase, name: str) -> None:
    try:
        screen.fleet.save_view(name)
    except OSError as error:
        raise UsageError(f"view {name!r} cannot be saved: {error.strerror or error}") from None
    screen.notify(f"View {name} is saved. :view {name} shows it.")


def command_help() -> Content:
    """Return every command with its description."""
    parts: list[tuple[str, str]] = []
    for words, meaning in help_lines():
        parts += [(fit_cell(words, 18, "left"), "bold"), (f"{meaning}\n", "$dim")]
    return Content.assemble(*parts, ("A state or a backend by itself shows those: exited, docker.", "$dim"))


def views_words(views: Views) -> Content:
    """Return every view with what it shows."""
    parts: list[tuple[str, str]] = []
    for name in views.names:
        view = views.get(name)
        shown = [f"filter {view.filter}"] if view.filter else []
        shown += [f"group {view.group}"] if view.group else []
        shown += [f"sort {view.sort}"] if view.sort else []
        shown += [f"columns {' '.join(view.columns)}"] if view.columns else []
        shown += ["faults only"] if view.faults else []
        shown += ["ours only"] if view.managed else []
        parts += [(f"{clean(name)}  ", "bold"), (f"{clean(', '.join(shown) or 'everything')}\n", "$dim")]
    return Content.assemble(*parts or [("None yet. :save NAME keeps what is shown.", "$dim")])
