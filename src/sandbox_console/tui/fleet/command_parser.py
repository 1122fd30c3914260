"""The commands of the ``:`` line, their meanings and their completion. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from sandbox_console.errors import UsageError
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.sandbox import Status
from sandbox_console.tui.fleet.columns import BY_KEY
from sandbox_console.tui.fleet.filter.tokens import FilterError, words
from sandbox_console.tui.fleet.groups import CYCLE
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.text.formatting import maker

_ALIASES_DEEP = 8


class Command(NamedTuple):
    """A command: its name and its argument."""

    name: str
    argument: str = ""


class _Known(NamedTuple):
    argument: str
    help: str


COMMANDS: Mapping[str, _Known] = {
    "all": _Known("", "show everything: no filter, no groups"),
    "faults": _Known("", "only what is wrong, or everything"),
    "managed": _Known("", "only what this console made, or everything"),
    "filter": _Known("text", "show what matches a filter"),
    "state": _Known("STATE", "only sandboxes in a state"),
    "backend": _Known("NAME", "only those of a backend"),
    "host": _Known("NAME", "only those on a host"),
    "image": _Known("NAME", "only those of an image"),
    "maker": _Known("NAME", "only those made by a tool"),
    "label": _Known("KEY=VALUE", "only those with a label"),
    "group": _Known("FIELD", "groups by backend, host, image, maker, state or label:KEY; none"),
    "sort": _Known("COLUMN", "sort by a column; -COLUMN from the largest; none"),
    "columns": _Known("", "choose the columns, or name them"),
    "wide": _Known("", "every column, or those that fit"),
    "view": _Known("NAME", "show a saved view"),
    "views": _Known("", "list the saved views"),
    "save": _Known("NAME", "save what is shown as a view"),
    "forget": _Known("NAME", "remove a saved view"),
    "new": _Known("", "make a sandbox"),
    "audit": _Known("", "the audit log of the fleet"),
    "egress": _Known("", "what was denied in the fleet"),
    "images": _Known("", "what sandboxes are made of"),
    "snapshots": _Known("", "saved states of sandboxes"),
    "pulse": _Known("", "the fleet on one page"),
    "why": _Known("", "why the selected sandbox ended"),
    "timeline": _Known("", "what happened to the marked ones or the selected one"),
    "kept": _Known("", "shells that outlive the console: attach, watch, end"),
    "recordings": _Known("", "recorded shells and commands of all sandboxes"),
    "alerts": _Known("", "what the rules of alerts found"),
    "loudest": _Known("", "those that write the most to their logs first"),
    "backends": _Known("", "each backend's health"),
    "messages": _Known("", "all messages so far"),
    "help": _Known("", "these commands; the key ? lists the keys"),
    "quit": _Known("", "leave; sandboxes keep running"),
}
SHORT = {
    "q": "quit",
    "q!": "quit",
    "a": "all",
    "sb": "all",
    "sandboxes": "all",
    "cols": "columns",
    "ours": "managed",
    "?": "help",
}
_STATES = tuple(str(status) for status in Status)


class Known(Struct, frozen=True):
    """The known names: the fleet's backends, hosts, images and labels, the views, and the config's aliases."""

    backends: Sequence[str] = ()
    hosts: Sequence[str] = ()
    images: Sequence[str] = ()
    labels: Sequence[str] = ()
    makers: Sequence[str] = ()
    views: Sequence[str] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)

    def arguments(self, command: str) -> Iterable[str]:
        """Return the possible arguments of a command."""
        keys = (f"label:{label.partition('=')[0]}" for label in self.labels)
        found: dict[str, Iterable[str]] = {
            "state": _STATES, "backend": self.backends, "host": self.hosts, "image": self.images,
            "maker": self.makers, "label": self.labels, "view": self.views, "forget": self.views, "save": self.views,
            "group": (*CYCLE[1:], "maker", "state", *dict.fromkeys(keys), "none"),
            "sort": (*BY_KEY, "none"),
        }  # fmt: skip
        return found.get(command, ())


def parse_command(line: str, known: Known) -> Command:
    """Parse a line, expanding the config's aliases. Raises UsageError, which names the nearest match."""
    for _ in range(_ALIASES_DEEP):
        name, _, rest = line.strip().removeprefix(":").strip().partition(" ")
        if name not in known.aliases:
            return _parse(name, rest.strip(), known)
        line = f"{known.aliases[name]} {rest}"
    raise UsageError(f"alias {name!r} refers to itself", hint="an alias in [tui.aliases] leads back to itself")


def _parse(name: str, rest: str, known: Known) -> Command:
    if name.startswith("/"):
        return Command("filter", f"{name[1:]} {rest}".strip())
    lower = SHORT.get(name.lower(), name.lower())
    if lower in COMMANDS:
        if not rest and COMMANDS[lower].argument not in ("", "text"):
            raise UsageError(f":{lower} needs {COMMANDS[lower].argument}", hint=f"{COMMANDS[lower].help}")
        if rest and not COMMANDS[lower].argument and lower != "columns":
            raise UsageError(f":{lower} takes no argument: leave out {rest!r}", hint=f"{COMMANDS[lower].help}")
        return Command(lower, rest)
    if lower in _STATES:
        return _narrowed(Command("state", lower), rest)
    if name in known.backends:
        return _narrowed(Command("backend", name), rest)
    every = [*COMMANDS, *_STATES, *known.backends, *known.aliases]
    near = nearest(name, every)
    hint = f"did you mean :{near}?" if near else ":help lists the commands"
    raise UsageError(f"no command :{name}: {hint}", hint=hint)


def _narrowed(command: Command, rest: str) -> Command:
    """Return a command narrowed by the filter after it, with or without a leading ``/``: ``:docker /web``."""
    return Command("filter", f"{filter_of(command)} {rest.removeprefix('/').strip()}") if rest else command


def completions(line: str, known: Known) -> list[str]:
    """Return the complete lines that start with the typed text."""
    name, space, rest = line.lstrip().partition(" ")
    if not space:
        every = [*COMMANDS, *_STATES, *known.backends, *known.aliases]
        return [one for one in dict.fromkeys(every) if one.startswith(name)] if name else []
    minus = "-" if name == "sort" and rest.startswith("-") else ""
    return [
        f"{name} {minus}{one}" for one in known.arguments(SHORT.get(name, name)) if one.startswith(rest[len(minus) :])
    ]


_BEFORE_QUOTE = re.compile(r'(\\+)("|\Z)')
"""Only these backslashes are doubled. Elsewhere a backslash is literal, as regular expressions need it."""


def quoted(value: str) -> str:
    """Return a value as it is written in a filter."""
    try:
        plain = [word.text for word in words(value)] == [value] and not set('"*?,').intersection(value)
    except FilterError:
        plain = False
    return value if plain else '"' + _BEFORE_QUOTE.sub(r"\1\1\2", value).replace('"', '\\"') + '"'


def filter_of(command: Command) -> str:
    """Return the filter that a command such as ``:host web1`` stands for."""
    if command.name == "label":
        key, equals, value = command.argument.partition("=")
        return f"label.{key}={quoted(value)}" if equals else f"-l {key}"
    if command.name == "filter":
        return command.argument
    value = command.argument
    return f"{command.name}={value if command.name == 'state' else quoted(value)}"


def help_lines() -> list[tuple[str, str]]:
    """Return every command with its description."""
    return [(f":{name} {one.argument}".strip(), one.help) for name, one in COMMANDS.items()]


def known_of(state: FleetState, views: Sequence[str], aliases: dict[str, str]) -> Known:
    """Return the names that are known now."""
    everything = list(state.sandboxes.values())
    labels = {f"{key}={value}": None for sandbox in everything for key, value in sandbox.labels.items()}
    return Known(
        backends=_unique(key[0] for key in state.health) or _unique(sandbox.ref.backend for sandbox in everything),
        hosts=_unique(sandbox.ref.host for sandbox in everything),
        images=_unique(sandbox.image for sandbox in everything),
        makers=_unique(map(maker, everything)),
        labels=list(labels),
        views=views,
        aliases=aliases,
    )


def _unique(values: Iterable[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]
