"""Any action as the command that does the same. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sandbox_console.model.action import (
    Action,
    Attach,
    Commit,
    Create,
    Exec,
    Fork,
    PruneImages,
    PullImage,
    Remove,
    RemoveImage,
    RemoveSnapshot,
    Rename,
    RestoreSnapshot,
    TakeSnapshot,
    Update,
    ref_of,
)

CLI_VERBS = {
    "remove": "rm",
    "pull": "images pull",
    "remove-image": "images rm",
    "prune-images": "images prune",
    "snapshot": "snapshot create",
    "restore": "snapshot restore",
    "remove-snapshot": "snapshot rm",
}
"""What the command line calls a verb, where it has another name there."""

OPEN = {"rename": "NEW", "commit": "IMAGE", "fork": "NEW", "pull": "IMAGE", "snapshot": "SNAPSHOT", "restore": "NAME"}
"""What stands for a word that is not typed yet."""


def command_line(action: Action) -> str:
    """The same action as a command to type; values of env are left out."""
    return shlex.join(["sandbox-console", *CLI_VERBS.get(action.verb, action.verb).split(), *_words(action)])


def bulk_command(actions: Sequence[Action]) -> str:
    """The same verb on several as a command: where one is removed by force all are, as the option is for all."""
    if not actions:
        return ""
    first = actions[0]
    words = ["sandbox-console", CLI_VERBS.get(first.verb, first.verb)]
    words += [str(ref) for action in actions if (ref := ref_of(action)) is not None]
    force = any(isinstance(action, Remove) and action.force for action in actions)
    return shlex.join([*words, *(["--force"] if force else [])])


def _words(action: Action) -> list[str]:
    """What stands after the verb."""
    match action:
        case Create(spec=spec, backend=backend):
            words = [spec.name, "--image", spec.image, "--backend", backend, *_options(action)]
            return words + (["--", *spec.command] if spec.command else [])
        case Update(ref=ref, spec=spec):
            return [str(ref), "--image", spec.image, *_options(action)]
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


def _options(action: Create | Update) -> list[str]:
    spec = action.spec
    words: list[str] = []
    for option, value in (("--cpus", spec.cpus), ("--pids", spec.pids), ("--workspace", spec.workspace)):
        words += [option, f"{value:g}" if isinstance(value, float) else str(value)] if value is not None else []
    words += ["--memory", f"{spec.memory_mib}M"] if spec.memory_mib is not None else []
    for option, values in (("--egress", spec.egress), ("--secret", spec.secrets)):
        words += [word for value in values for word in (option, value)]
    words += [word for key, value in spec.labels.items() for word in ("--label", f"{key}={value}")]
    return words + [word for key in spec.env for word in ("--env", f"{key}=…")]
