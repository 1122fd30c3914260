"""The keymap: defaults, lazydocker's keys, and the configuration. Conflicts are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from msgspec import Struct
from textual.app import App
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import Keys, _character_to_key
from textual.screen import Screen

from sandbox_console.errors import ConfigError
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.service import TuiOptions
from sandbox_console.tui.keys.key_names import long_key
from sandbox_console.tui.keys.main_keys import TABLE_KEYS, list_keys
from sandbox_console.tui.keys.page_keys import NO_KEY, named, scope_of
from sandbox_console.tui.keys.page_keys import taken as taken_in

KEYMAPS: Mapping[str, Mapping[str, str]] = {
    "default": {},
    "lazydocker": {"stop": "s", "remove": "d,delete", "menu": "x", "logs": "m,l", "shell": "E"},
}
"""How each preset differs from the defaults. A key that it uses is removed from the action that has it by default."""
OLD_IDS: Mapping[str, str] = {
    "logs-oldest-line": "logs-first-line",
    "logs-follow-on-off": "logs-toggle-follow",
    "logs-select-line-above": "logs-select-up",
    "logs-select-line-below": "logs-select-down",
    "logs-json-in-full": "logs-expand-json",
    "logs-json-in-short-on-off": "logs-compact-json",
    "logs-put-a-mark": "logs-mark",
    "logs-mark-before": "logs-previous-mark",
    "logs-copy-the-line": "logs-copy-line",
    "logs-copy-the-page": "logs-copy-page",
    "logs-logs-of-removed-ones": "logs-removed",
    "inspect-raw-or-tree": "inspect-raw",
    "inspect-ask-anew": "inspect-refresh",
    "files-folder-above": "files-parent",
    "files-go-to-a-path": "files-go-to",
    "files-look-anew": "files-refresh",
    "hosts-denials-only-all": "hosts-denials-only",
    "draft-changes-only-all": "draft-changes-only",
    "columns-show-hide": "columns-toggle",
    "columns-its-own-width": "columns-reset-width",
    "columns-the-usual-ones": "columns-defaults",
    "form-create-apply": "form-submit",
    "form-field-before": "form-previous-field",
    "results-no-more": "results-stop",
    "audit-go-to-the-sandbox": "audit-go-to-sandbox",
    "images-cancel-a-pull": "images-cancel-pull",
    "images-copy-its-name": "images-copy-name",
    "snapshots-take-of-the-selected-sandbox": "snapshots-take",
}
"""Ids that configs of version 0.1 may have, with their current ids."""

_FIXED = {"ctrl+p": "the palette", "ctrl+q": "quit", "ctrl+c": "copy", "ctrl+right_square_bracket": "leave the shell",
          "tab": "the next widget", "shift+tab": "the previous widget"}  # fmt: skip
_MODIFIERS = {"ctrl", "shift", "alt"}
_NAMED = {key.value for key in Keys}


class Keymap(Struct, frozen=True):
    """The keys of every action of the list, by id. ``changed`` holds those that are not the defaults.

    For actions inside logs, tabs and pages (`page_keys`), only changed ones are here.
    """

    keys: Mapping[str, tuple[str, ...]]
    changed: Mapping[str, str]

    def of(self, action: str) -> tuple[str, ...]:
        """Return the keys of an action, if any, the one in menus first. Raises KeyError for an unknown id."""
        return self.keys[action] if action in self.keys else _usual(action)

    def first(self, action: str) -> str:
        """Return the key that menus show, or an empty string if there is none. Raises KeyError for an unknown id."""
        return next(iter(self.of(action)), "")


@cache
def _usual(action: str) -> tuple[str, ...]:
    """Return the default keys of an action. Raises KeyError for an unknown id."""
    scope = scope_of(action)
    known = {binding.id: binding.key for binding in (named(scope) if scope else list_keys())}
    return tuple(known[action].split(","))


def key_of(node: DOMNode | None, action: str) -> str:
    """Return an action's key for a text on a widget, ``Ctrl+E``: the first that the widget does not use itself.

    Returns an empty string if it has none, and the default without a widget. Raises KeyError for an unknown id.
    """
    keymap = getattr(node.app, "keymap", None) if node is not None else None
    if node is None or not isinstance(keymap, Keymap):
        return long_key(next(iter(_usual(action)), ""))
    taken = _taken_by(node, action, keymap)
    return long_key(next((key for key in keymap.of(action) if key not in taken), ""))


def _taken_by(node: DOMNode, action: str, keymap: Keymap) -> set[str]:
    """Return the keys that a widget and its parents use for something else: in a tab they do not reach the list."""
    found: set[str] = set()
    for widget in node.ancestors_with_self:
        if isinstance(widget, Screen | App):
            break
        if widget._bindings.key_to_bindings:  # noqa: SLF001 - there is no public access to the bindings of one widget
            own = widget._bindings.copy()  # noqa: SLF001
            own.apply_keymap(dict(keymap.changed))
            found.update(key for key, known in own if known.id != action)
    return found


def hint(node: DOMNode | None, action: str, words: str) -> str:
    """Return ``KEY words``, or an empty string if no key does it, so that a text never names a wrong key."""
    key = key_of(node, action)
    return f"{key} {words}" if key else ""


def no_search(node: DOMNode, action: str) -> str:
    """Return why there is no next match, and the key that searches."""
    starts = hint(node, action, "searches.")
    return f"Nothing is being searched for. {starts}".rstrip()


def hints(node: DOMNode | None, *pairs: tuple[str, str]) -> str:
    """Return the hints for several actions and their words, side by side."""
    return "  ".join(filter(None, (hint(node, action, words) for action, words in pairs)))


def actions() -> dict[str, str]:
    """Return the actions that the config may name, with their descriptions."""
    return {binding.id: binding.description for binding in list_keys() if binding.id}


def load(options: TuiOptions) -> Keymap:
    """Return the keys in force. Raises ConfigError for an unknown action or key, or for a key with two actions."""
    chosen = {action: _parse(action, text) for action, text in _of_today(options.keys).items()}
    usual = {binding.id: tuple(binding.key.split(",")) for binding in list_keys() if binding.id}
    inner = {action: keys for action, keys in chosen.items() if action not in usual}
    keys = _with_preset(usual, KEYMAPS[options.keymap])
    keys |= {action: found for action, found in chosen.items() if action in usual}
    _refuse_conflicts(keys)
    _check_scopes(inner)
    changed = {action: found for action, found in keys.items() if found != usual[action]} | inner
    return Keymap(keys | inner, {action: ",".join(found) or NO_KEY for action, found in changed.items()})


def _of_today(keys: Mapping[str, str]) -> dict[str, str]:
    """Return the config's keys with old ids replaced by current ones. Raises ConfigError if it has both ids."""
    for old, new in OLD_IDS.items():
        if old in keys and new in keys:
            raise ConfigError(f"tui.keys: {old} is the old name of {new}, and both are given", hint=f"remove {old}")
    return {OLD_IDS.get(action, action): text for action, text in keys.items()}


def _check_scopes(chosen: Mapping[str, tuple[str, ...]]) -> None:
    """Raise ConfigError for an unknown action, and for a key that two actions of one scope share."""
    for scope in dict.fromkeys(map(scope_of, chosen)):
        usual = {binding.id: tuple(binding.key.split(",")) for binding in named(scope) if binding.id} if scope else {}
        ours = {action: found for action, found in chosen.items() if scope_of(action) == scope}
        for action in ours:
            if action not in usual:
                raise ConfigError(f"tui.keys: there is no action {action!r}", hint=_near(action, scope))
        others = {key: action for action, found in usual.items() if action not in ours for key in found}
        taken = _FIXED | taken_in(scope) | others
        for action, found in ours.items():
            _take(taken, action, found)


def _near(action: str, scope: str) -> str:
    known = [binding.id or "" for binding in named(scope)] if scope else []
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
        raise ConfigError(
            f"tui.keys.{action}: {word!r} is not a key", hint="as in x, X, ctrl+k, f5, slash, delete, space"
        )
    if set(modifiers) - _MODIFIERS:
        raise ConfigError(f"tui.keys.{action}: {word!r} is not a key", hint="modifiers are ctrl, shift and alt")
    return "+".join([*modifiers, base])


def _names() -> set[str]:
    """Return names of characters, such as ``question_mark``."""
    return {_character_to_key(chr(code)) for code in range(33, 127)} | {"space"}


def _refuse_conflicts(keys: Mapping[str, tuple[str, ...]]) -> None:
    taken = dict(_FIXED)
    for binding in TABLE_KEYS:
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
