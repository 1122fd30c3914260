"""What can be done to a sandbox: its verbs, their keys, and the reason where one does not fit now. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sandbox_console.model.action import (
    Action,
    Create,
    Exec,
    Kill,
    OpenShell,
    Pause,
    Remove,
    Restart,
    Resume,
    Start,
    Stop,
    Update,
    ref_of,
)
from sandbox_console.model.sandbox import Sandbox, Status
from sandbox_console.model.text import ascii_id


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of the list: its key, what it says in menus, and what it does in a sentence."""

    name: str
    key: str
    label: str
    effect: str
    make: Callable[[Sandbox], Action]
    states: frozenset[Status]
    danger: bool = False


_DOWN = frozenset({Status.CREATED, Status.EXITED, Status.FAILED, Status.LOST, Status.UNKNOWN})
_RUNNING = frozenset({Status.RUNNING})
_UP = frozenset({Status.STARTING, Status.RUNNING, Status.PAUSED, Status.STOPPING, Status.UNKNOWN})

VERBS = {
    verb.name: verb
    for verb in (
        Verb("start", "t", "Start", "Runs its command.", lambda it: Start(it.ref), _DOWN),
        Verb("stop", "x", "Stop", "SIGTERM to its main process, SIGKILL to all after 10 s.", lambda it: Stop(it.ref),
             _UP),
        Verb("restart", "r", "Restart", "Stops it, then starts it again.", lambda it: Restart(it.ref), _UP),
        Verb("pause", "p", "Pause", "Freezes every process in it.", lambda it: Pause(it.ref), _RUNNING),
        Verb("resume", "p", "Resume", "Thaws what was paused.", lambda it: Resume(it.ref), frozenset({Status.PAUSED})),
        Verb("kill", "ctrl+k", "Kill", "SIGKILL, at once: nothing in it can clean up.", lambda it: Kill(it.ref), _UP,
             danger=True),
        Verb("remove", "ctrl+d", "Remove", "Removes it, its logs and its files; the workspace stays.",
             lambda it: Remove(it.ref, force=it.status.live), frozenset(Status), danger=True),
    )
}  # fmt: skip


def unfit(verb: Verb, sandbox: Sandbox, busy: str | None = None) -> str:
    """Why a verb makes no sense for a sandbox as it is now; empty where it does."""
    if busy:
        return f"{busy} is in flight"
    return "" if sandbox.status in verb.states else f"it is {sandbox.status}"


def toggled_pause(sandbox: Sandbox) -> Verb:
    """Resume for a paused one, pause for any other."""
    return VERBS["resume" if sandbox.status is Status.PAUSED else "pause"]


def must_type(verb: Verb, sandbox: Sandbox, token: str = "") -> bool:
    """Whether a confirmation takes more than a yes: the policy says so, or running processes would be lost."""
    return bool(token) or (verb.danger and sandbox.status.live)


def accepted(typed: str, sandbox: Sandbox) -> bool:
    """Whether what was typed names the sandbox: its id, or 12 characters and more of the beginning of it."""
    typed, id_ = typed.strip(), ascii_id(sandbox.ref.id)
    return typed == id_ or (len(typed) >= 12 and id_.startswith(typed))


def bulk_pause(sandboxes: Iterable[Sandbox]) -> Verb:
    """Pause while one of them runs, else resume."""
    return VERBS["pause" if any(one.status is Status.RUNNING for one in sandboxes) else "resume"]


def bulk_command(actions: Sequence[Action]) -> str:
    """The same verb on several as a command: where one is removed by force all are, as the option is for all."""
    if not actions:
        return ""
    first = actions[0]
    words = ["sandbox-console", _CLI_VERBS.get(first.verb, first.verb)]
    words += [str(ref) for action in actions if (ref := ref_of(action)) is not None]
    force = any(isinstance(action, Remove) and action.force for action in actions)
    return shlex.join([*words, *(["--force"] if force else [])])


def command_line(action: Action) -> str:
    """The same action as a command to type; values of env are left out."""
    words = ["sandbox-console", _CLI_VERBS.get(action.verb, action.verb)]
    match action:
        case Create(spec=spec, backend=backend):
            words += [spec.name, "--image", spec.image, "--backend", backend, *_options(action)]
            words += ["--", *spec.command] if spec.command else []
        case Update(ref=ref, spec=spec):
            words += [str(ref), "--image", spec.image, *_options(action)]
        case Remove(ref=ref, force=force):
            words += [str(ref), *(["--force"] if force else [])]
        case Exec(ref=ref, argv=argv):
            words += [str(ref), "--", *argv]
        case OpenShell(ref=ref) | Start(ref=ref) | Stop(ref=ref) | Kill(ref=ref) | Restart(ref=ref) | Pause(ref=ref):
            words.append(str(ref))
        case Resume(ref=ref):
            words.append(str(ref))
    return shlex.join(words)


_CLI_VERBS = {"remove": "rm"}


def _options(action: Create | Update) -> list[str]:
    spec = action.spec
    words: list[str] = []
    for option, value in (("--cpus", spec.cpus), ("--workspace", spec.workspace)):
        words += [option, f"{value:g}" if isinstance(value, float) else str(value)] if value is not None else []
    words += ["--memory", f"{spec.memory_mib}M"] if spec.memory_mib is not None else []
    for option, values in (("--egress", spec.egress), ("--secret", spec.secrets)):
        words += [word for value in values for word in (option, value)]
    words += [word for key, value in spec.labels.items() for word in ("--label", f"{key}={value}")]
    return words + [word for key in spec.env for word in ("--env", f"{key}=…")]
