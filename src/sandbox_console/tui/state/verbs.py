"""The actions on a sandbox: verbs, their keys, and why one does not apply now. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from msgspec import Struct

from sandbox_console.model import drift
from sandbox_console.model.action import (
    Action,
    Commit,
    Fork,
    Kill,
    Pause,
    Quarantine,
    Release,
    Remove,
    Rename,
    Restart,
    Resume,
    Start,
    Stop,
    TakeSnapshot,
    Update,
)
from sandbox_console.model.sandbox import Sandbox, Status, spec_of
from sandbox_console.model.text import ascii_id


class Look(Struct, frozen=True):
    """What a verb would do to one sandbox: a note for the question, or why it is left out.

    ``keep`` is an action that keeps what would be lost, if it is done before.
    """

    note: str = ""
    refusal: str = ""
    keep: Action | None = None


class Verb(Struct, frozen=True):
    """One verb of the list: its key, its menu label, and a sentence that describes it.

    ``look``, if there is one, finds out what it would do to a sandbox. Raises ConsoleError.
    """

    name: str
    key: str
    label: str
    effect: str
    make: Callable[[Sandbox], Action]
    states: frozenset[Status]
    danger: bool = False
    look: Callable[[Sandbox], Awaitable[Look]] | None = None


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
        Verb("resume", "p", "Resume", "Resumes it.", lambda it: Resume(it.ref), frozenset({Status.PAUSED})),
        Verb("kill", "ctrl+k", "Kill", "SIGKILL, at once: nothing in it can clean up.", lambda it: Kill(it.ref), _UP,
             danger=True),
        Verb("remove", "ctrl+d", "Remove", "Removes it, its logs and its files; the workspace stays.",
             lambda it: Remove(it.ref, force=it.status.live), frozenset(Status), danger=True),
        Verb("quarantine", "Q", "Quarantine", "Ends its shells and forwards, denies its egress, freezes it, refuses "
             "commands, changes and removal, and writes a bundle of evidence. Shells that were ended stay ended.",
             lambda it: Quarantine(it.ref), frozenset(Status)),
        Verb("release", "Q", "Release", "Restores its egress, thaws it, and allows what was refused.",
             lambda it: Release(it.ref), frozenset(Status)),
        Verb("reapply", "<", "Re-apply", "Makes it as it was asked to be again.",
             lambda it: drift.reapply(it).action or Update(it.ref, spec_of(it), "reapply"), frozenset(Status)),
        Verb("adopt", ">", "Adopt", "Takes what is found for what was asked. Nothing about it changes.",
             lambda it: drift.adopt(it).action or Update(it.ref, spec_of(it), "adopt"), frozenset(Status)),
    )
}  # fmt: skip


DRIFT = {"reapply": drift.reapply, "adopt": drift.adopt}
"""The verbs that end drift. Menus show them only for sandboxes that have drifted."""


def verbs_for(sandboxes: Sequence[Sandbox]) -> Iterator[Verb]:
    """Yield the verbs that menus offer for sandboxes."""
    some = any(drift.drifted(sandbox) for sandbox in sandboxes)
    return (verb for verb in VERBS.values() if some or verb.name not in DRIFT)


def verb_of(action: Action) -> Verb | None:
    """Return the verb of the list that makes an action; None for the others."""
    return VERBS.get((action.drift if isinstance(action, Update) else "") or action.verb)


def unfit(verb: Verb | Naming, sandbox: Sandbox, busy: str | None = None) -> str:
    """Return why a verb does not apply to a sandbox now, or an empty string if it does."""
    if busy:
        return f"{busy} is in flight"
    if verb.name in ("quarantine", "release") and bool(sandbox.quarantine) is (verb.name == "quarantine"):
        return "it is in quarantine" if sandbox.quarantine else "it is not in quarantine"
    if verb.name in DRIFT:
        if not drift.drifted(sandbox):
            return "nothing differs from what was asked"
        mend = DRIFT[verb.name](sandbox)
        return "" if mend.action is not None else "; ".join(f"{name}: {reason}" for name, reason in mend.left.items())
    return "" if sandbox.status in verb.states else f"it is {sandbox.status}"


def toggled_pause(sandbox: Sandbox) -> Verb:
    """Return resume for a paused sandbox, and pause for any other."""
    return VERBS["resume" if sandbox.status is Status.PAUSED else "pause"]


def toggled_quarantine(sandboxes: Iterable[Sandbox]) -> Verb:
    """Return quarantine if one of them is not in quarantine, otherwise release."""
    return VERBS["release" if all(sandbox.quarantine for sandbox in sandboxes) else "quarantine"]


def must_type(verb: Verb, sandbox: Sandbox, token: str = "") -> bool:
    """Return whether a yes is not enough, because the policy requires more or running processes would be lost."""
    return bool(token) or (verb.danger and sandbox.status.live)


def accepted(typed: str, sandbox: Sandbox) -> bool:
    """Return whether the typed text names the sandbox: its id, or at least its first 12 characters."""
    typed, id_ = typed.strip(), ascii_id(sandbox.ref.id)
    return typed == id_ or (len(typed) >= 12 and id_.startswith(typed))


def bulk_pause(sandboxes: Iterable[Sandbox]) -> Verb:
    """Return pause if one of them is running, otherwise resume."""
    return VERBS["pause" if any(sandbox.status is Status.RUNNING for sandbox in sandboxes) else "resume"]


class Naming(Struct, frozen=True):
    """A verb that takes a typed word: its key, its prompt, and a sentence that describes it."""

    name: str
    label: str
    asks: str
    hint: str
    effect: str
    make: Callable[[Sandbox, str], Action]
    states: frozenset[Status] = frozenset(Status)
    suggest: Callable[[Sandbox], str] = lambda _: ""


_ROOTED = frozenset(Status) - {Status.LOST, Status.UNKNOWN}

NAMINGS = {
    naming.name: naming
    for naming in (
        Naming("rename", "Rename", "Another name for", "letters, digits, - _ .",
               "Its id stays.", lambda it, word: Rename(it.ref, word), suggest=lambda it: it.name),
        Naming("commit", "Commit", "An image of", "such as team/app:fixed",
               "Pauses it while an image of its disk is made. Memory and workspace are not in the image.",
               lambda it, word: Commit(it.ref, word), _ROOTED),
        Naming("snapshot", "Snapshot", "A snapshot of", "a name for it",
               "Saves its disk, to make other sandboxes from.", lambda it, word: TakeSnapshot(it.ref, word), _ROOTED),
        Naming("fork", "Fork", "A running copy of", "the copy's name",
               "Copies its disk and its memory.", lambda it, word: Fork(it.ref, word), _RUNNING),
    )
}  # fmt: skip
