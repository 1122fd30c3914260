"""Writes any action as the equivalent command line. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from sandbox_console.model.action import (
    Action,
    Attach,
    Commit,
    Create,
    Exec,
    Fork,
    Forward,
    Remove,
    Rename,
    TakeSnapshot,
    Update,
    ref_of,
)
from sandbox_console.model.host_action import PruneImages, PullImage, RemoveImage, RemoveSnapshot, RestoreSnapshot
from sandbox_console.model.secret import shown_env
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import FIELDS

CLI_VERBS = {
    "remove": "rm",
    "pull": "images pull",
    "remove-image": "images rm",
    "prune-images": "images prune",
    "snapshot": "snapshot create",
    "restore": "snapshot restore",
    "remove-snapshot": "snapshot rm",
    "release": "quarantine --undo",
}
"""The command line's names for the verbs that it names differently."""

_OPTIONS = {field.name: f"--{field.option}" for field in FIELDS if field.option}
_TABLES = {"labels", "env"}

LEFT_OUT = "…"
"""What stands for a value that is not shown."""

OPEN = {"rename": "NEW", "commit": "IMAGE", "fork": "NEW", "pull": "IMAGE", "snapshot": "SNAPSHOT", "restore": "NAME"}
"""The placeholder for a word that has not been typed yet."""


def command_line(action: Action, before: SandboxSpec | None = None, confirm: str = "") -> str:
    """Return the command that is equivalent to an action. Values of variables that sound secret are left out.

    For an update, the command has the fields that differ from ``before``, or without ``before`` every field of its
    spec. ``confirm`` is the id that the policy requires for it.
    """
    verb = _verb(action).split()
    words = _update(action, before) if isinstance(action, Update) and not action.drift else _words(action)
    return shlex.join(["sandbox-console", *verb, *(_option("--confirm", confirm) if confirm else []), *words])


def bulk_command(actions: Sequence[Action], befores: Sequence[SandboxSpec] = ()) -> str:
    """Return one command for a verb on several sandboxes. If one is removed by force, all are: the option is shared.

    Updates need the specs ``befores``, and have a command on a line of its own for each set of changes.
    """
    if not actions:
        return ""
    first = actions[0]
    if isinstance(first, Update) and not first.drift:
        return "\n".join(_updates(actions, befores))
    words = ["sandbox-console", *_verb(first).split()]
    words += [str(ref) for action in actions if (ref := ref_of(action)) is not None]
    force = any(isinstance(action, Remove) and action.force for action in actions)
    return shlex.join([*words, *(["--force"] if force else [])])


def _updates(actions: Sequence[Action], befores: Sequence[SandboxSpec]) -> Iterator[str]:
    """Yield a command for each set of changes, with the sandboxes that get it."""
    same: dict[tuple[str, ...], list[str]] = {}
    for action, before in zip(actions, befores, strict=True):
        if isinstance(action, Update):
            ref, *options = _update(action, before)
            same.setdefault(tuple(options), []).append(ref)
    yield from (shlex.join(["sandbox-console", "update", *refs, *options]) for options, refs in same.items())


def _verb(action: Action) -> str:
    """Return the verb of the command line, with the option that says which of its actions is meant."""
    if isinstance(action, Update) and action.drift:
        return f"drift --{action.drift}"
    return CLI_VERBS.get(action.verb, action.verb)


def _words(action: Action) -> list[str]:
    """Return the words after the verb."""
    match action:
        case Create(spec=spec, backend=backend, host=host, start=start):
            words = [spec.name, "--backend", f"{backend}/{host}", *([] if start else ["--no-start"])]
            return words + _spec_words(spec.to_dict())
        case Remove(ref=ref, force=force):
            return [str(ref), *(["--force"] if force else [])]
        case Exec(ref=ref, argv=argv):
            return [str(ref), "--", *argv]
        case Rename(ref=ref, name=name) | Fork(ref=ref, name=name):
            return [str(ref), name or OPEN[action.verb]]
        case Commit(ref=ref, image=image):
            return [str(ref), image or OPEN[action.verb]]
        case TakeSnapshot(ref=ref, name=name, full=full):
            return [str(ref), name or OPEN[action.verb], *(["--full"] if full else [])]
        case Attach(ref=ref):
            return [str(ref)]
        case Forward(ref=ref):
            return [str(ref), str(action.published)]
        case _:
            return _on_host(action)


def _on_host(action: Action) -> list[str]:
    match action:
        case PullImage(image=image):
            words = [image or OPEN[action.verb]]
        case RemoveImage(image=image, force=force):
            words = [image, *(["--force"] if force else [])]
        case PruneImages(unused=unused):
            words = ["--all"] if unused else []
        case RestoreSnapshot(snapshot=snapshot, name=name):
            words = [snapshot, name or OPEN[action.verb]]
        case RemoveSnapshot(snapshot=snapshot):
            words = [snapshot]
        case _:
            ref = ref_of(action)
            return [str(ref)] if ref is not None else []
    return [*words, "--backend", f"{action.backend}/{action.host}"]


def _update(action: Update, before: SandboxSpec | None) -> list[str]:
    old, new = before.to_dict() if before else {}, action.spec.to_dict()
    name = new.pop("name")
    words = [str(action.ref), *(_option("--name", name) if before is not None and name != before.name else [])]
    # The command line adds to a table, so a table that lost a key starts again from empty.
    shrunk = [field for field in _TABLES if old.get(field, {}).keys() - new.get(field, {}).keys()]
    for field in [field for field in old if field != "name" and (field not in new or field in shrunk)]:
        words += ["--unset", field]
        old[field] = {}
    changed = {field: value for field, value in new.items() if old.get(field) != value}
    for field in _TABLES & changed.keys():
        changed[field] = {key: value for key, value in new[field].items() if old.get(field, {}).get(key) != value}
    return words + _spec_words(changed)


def _spec_words(fields: dict[str, Any]) -> list[str]:
    """Return fields of a spec as options, with the command last. Durations are in seconds."""
    words: list[str] = []
    for field, option in _OPTIONS.items():
        match fields.get(field):
            case None:
                continue
            case True:
                words.append(option)
            case dict() as table:
                shown = shown_env(table) if field == "env" else table
                pairs = (f"{key}={value if shown[key] == value else LEFT_OUT}" for key, value in table.items())
                words += [word for pair in pairs for word in _option(option, pair)]
            case list() as values:
                words += [word for value in values for word in _option(option, value)]
            case value:
                words += _option(option, f"{value}M" if field == "memory_mib" else _plain(value))
    return words + (["--", *fields["command"]] if "command" in fields else [])


def _option(option: str, value: str) -> list[str]:
    return [f"{option}={value}"] if value.startswith("-") else [option, value]


def _plain(value: object) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
