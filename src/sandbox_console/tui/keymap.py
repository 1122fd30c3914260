"""Which key does what: the defaults, another program's habits, and what the config sets; conflicts are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from msgspec import Struct
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key

from sandbox_console.errors import ConfigError
from sandbox_console.service import TuiOptions
from sandbox_console.tui import scopes
from sandbox_console.tui.keynames import long_key
from sandbox_console.tui.keys import MAIN_KEYS
from sandbox_console.tui.near import nearest
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


class Keymap(Struct, frozen=True):
    """The keys of every action of the list, by its id; ``changed`` holds those that are not the defaults.

    Of the actions inside logs, tabs and pages (`scopes`) only the changed ones are here.
    """

    keys: Mapping[str, tuple[str, ...]]
    changed: Mapping[str, str]

    def first(self, action: str) -> str:
        """The key that menus name; empty where the action has none."""
        found = self.keys.get(action)
        if found is None and action:
            return _usual(action)
        return found[0] if found else ""


@cache
def _usual(action: str) -> str:
    """The first key that an action has by default."""
    scope = scopes.scope_of(action)
    known = scopes.named(scope) if scope else bindings()
    return next((one.key.split(",")[0] for one in known if one.id == action), "")


def key_of(node: DOMNode | None, action: str) -> str:
    """The key of an action as a text names it, ``Ctrl+E``; empty where it has none. Without a node the default."""
    keymap = getattr(node.app, "keymap", None) if node is not None else None
    return long_key(keymap.first(action) if isinstance(keymap, Keymap) else _usual(action))


def hint(node: DOMNode | None, action: str, words: str) -> str:
    """``KEY words``; empty where no key does it, so that a text never names one that does something else."""
    key = key_of(node, action)
    return f"{key} {words}" if key else ""


def hints(node: DOMNode | None, *pairs: tuple[str, str]) -> str:
    """A hint for each action and its words, side by side."""
    return "  ".join(filter(None, (hint(node, action, words) for action, words in pairs)))


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
    chosen = {action: _parse(action, text) for action, text in options.keys.items()}
    usual = {binding.id: tuple(binding.key.split(",")) for binding in bindings() if binding.id}
    inner = {action: keys for action, keys in chosen.items() if action not in usual}
    keys = _with_preset(usual, KEYMAPS[options.keymap])
    keys |= {action: found for action, found in chosen.items() if action in usual}
    _refuse_conflicts(keys)
    _check_scopes(inner)
    changed = {action: found for action, found in keys.items() if found != usual[action]} | inner
    return Keymap(keys | inner, {action: ",".join(found) or _NONE for action, found in changed.items()})


def _check_scopes(chosen: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ConfigError for an unknown action, and for a key that is two actions' of one scope."""
    for scope in dict.fromkeys(map(scopes.scope_of, chosen)):
        usual = {one.id: tuple(one.key.split(",")) for one in scopes.named(scope) if one.id} if scope else {}
        ours = {action: found for action, found in chosen.items() if scopes.scope_of(action) == scope}
        for action in ours:
            if action not in usual:
                raise ConfigError(f"tui.keys: there is no action {action!r}", hint=_near(action, scope))
        others = {key: action for action, found in usual.items() if action not in ours for key in found}
        taken = _FIXED | scopes.taken(scope) | others
        for action, found in ours.items():
            _take(taken, action, found)


def _near(action: str, scope: str) -> str:
    known = [one.id or "" for one in scopes.named(scope)] if scope else []
    near = nearest(action, [*actions(), *known])
    return f"did you mean {near}?" if near else f"actions: {', '.join(known or actions())}"


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
        _take(taken, action, found)


def _take(taken: dict[str, str], action: str, found: tuple[str, ...]) -> None:
    for key in found:
        if key in taken:
            raise ConfigError(
                f"tui.keys: the key {key} is both {taken[key]} and {action}",
                hint=f'give one of them another key, or none: [tui.keys] {action} = ""',
            )
        taken[key] = action
