"""Which key does what: the defaults, another program's habits, and what the config sets; conflicts are refused."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from textual.binding import Binding
from textual.keys import Keys, _character_to_key

from sandbox_console.errors import ConfigError
from sandbox_console.service import TuiOptions
from sandbox_console.tui.keys import MAIN_KEYS
from sandbox_console.tui.widgets.marked import MarkedTable
from sandbox_console.tui.widgets.table import FleetTable

KEYMAPS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "lazydocker": {"stop": "s", "remove": "d,delete", "menu": "x", "logs": "m,l", "shell": "E"},
}
"""Where each differs from the defaults; a key that it uses is taken from the action that has it by default."""
_FIXED = {"ctrl+p": "the palette", "ctrl+q": "quit", "ctrl+c": "copy", "ctrl+right_square_bracket": "leave the shell",
          "tab": "the next widget", "shift+tab": "the widget before"}  # fmt: skip
_MODIFIERS = {"ctrl", "shift", "alt"}
_NAMED = {key.value for key in Keys}
_NONE = "no-key"


@dataclass(frozen=True, slots=True)
class Keymap:
    """The keys of every action of the list, by its id; ``changed`` holds those that are not the defaults."""

    keys: Mapping[str, tuple[str, ...]]
    changed: Mapping[str, str]

    def first(self, action: str) -> str:
        """The key that menus name; empty where the action has none."""
        found = self.keys.get(action, ())
        return found[0] if found else ""


def bindings() -> Iterator[Binding]:
    """Every binding that a config can change."""
    for binding in (*MAIN_KEYS, *MarkedTable.BINDINGS):
        if isinstance(binding, Binding) and binding.id:
            yield binding


def actions() -> dict[str, str]:
    """What the config may name, with what each does."""
    return {binding.id: binding.description for binding in bindings() if binding.id}


def load(options: TuiOptions) -> Keymap:
    """The keys in force. Raises ConfigError for an unknown action or key, and for a key that is two actions'."""
    known = actions()
    for action in options.keys:
        if action not in known:
            near = difflib.get_close_matches(action, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"actions: {', '.join(known)}"
            raise ConfigError(f"tui.keys: there is no action {action!r}", hint=hint)
    usual = {binding.id: tuple(binding.key.split(",")) for binding in bindings() if binding.id}
    keys = _with_preset(usual, KEYMAPS[options.keymap])
    keys |= {action: _parse(action, text) for action, text in options.keys.items()}
    _refuse_conflicts(keys)
    return Keymap(keys, {action: ",".join(found) or _NONE for action, found in keys.items() if found != usual[action]})


def _with_preset(usual: Mapping[str, tuple[str, ...]], preset: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    chosen = {action: _parse(action, text) for action, text in preset.items()}
    used = {key for keys in chosen.values() for key in keys}
    return {action: tuple(key for key in keys if key not in used) for action, keys in usual.items()} | chosen


def _parse(action: str, text: str) -> tuple[str, ...]:
    return tuple(_normal(action, word.strip()) for word in ([text] if text == "," else text.split(",")) if word.strip())


def _normal(action: str, word: str) -> str:
    *modifiers, base = ("+",) if word == "+" else word.split("+")
    if len(base) == 1 and base.isprintable() and base != " ":
        named = _character_to_key(base)
        base = named if not modifiers or named.isalnum() else base
    elif base not in _NAMED and base not in _names():
        raise ConfigError(f"tui.keys.{action}: {word!r} is no key", hint="as in x, X, ctrl+k, f5, slash, delete, space")
    if set(modifiers) - _MODIFIERS:
        raise ConfigError(f"tui.keys.{action}: {word!r} is no key", hint="modifiers are ctrl, shift and alt")
    return "+".join([*modifiers, base])


def _names() -> set[str]:
    """Names of characters, as in ``question_mark``."""
    return {_character_to_key(chr(code)) for code in range(33, 127)} | {"space"}


def _refuse_conflicts(keys: Mapping[str, tuple[str, ...]]) -> None:
    taken = dict(_FIXED)
    for binding in FleetTable.BINDINGS:
        if isinstance(binding, Binding):
            taken |= dict.fromkeys(binding.key.split(","), f"moving in the list ({binding.description})")
    for action, found in keys.items():
        for key in found:
            if key in taken:
                raise ConfigError(
                    f"tui.keys: the key {key} is both {taken[key]} and {action}",
                    hint=f'give one of them another key, or none: [tui.keys] {action} = ""',
                )
            taken[key] = action
