"""Notes which names an action takes or frees, and finds names that only the audit log has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import (
    Action,
    Create,
    Fork,
    Remove,
    Rename,
    Update,
    place_of,
)
from sandbox_console.model.audit import AuditEntry, AuditQuery, Outcome
from sandbox_console.model.host_action import RestoreSnapshot
from sandbox_console.model.spec import MADE_BY
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.reads.known_names import Key, KnownNames

_LOOKED_AT = 200


def note_before(names: KnownNames, action: Action) -> None:
    """Note a name that an action is about to use: if the host then stops answering, it may have the name."""
    match action:
        case Create(spec=spec):
            names.asked(place_of(action), spec.name, spec.labels.get(MADE_BY, ""))
        case Update(spec=spec):
            known, file = names.of(place_of(action)), spec.labels.get(MADE_BY, "")
            if not known.holds(spec.name) or (file and spec.name not in known.made_by(file)):
                names.asked(place_of(action), spec.name, file)
        case Rename(name=name) | Fork(name=name) | RestoreSnapshot(name=name):
            names.asked(place_of(action), name)
        case _:
            pass


def note_after(names: KnownNames, action: Action) -> None:
    """Note a name that an action removed."""
    if isinstance(action, (Remove, Rename)):
        names.gone(place_of(action), action.ref.id)


def recorded(audit_log: AuditLog) -> Callable[[Key, str], Awaitable[bool]]:
    """A function that says whether the log has a sandbox of a name on a host that was not removed since."""

    async def reported(key: Key, name: str) -> bool:
        try:
            rows = await audit_log.entries(AuditQuery(limit=_LOOKED_AT, backend=key[0], text=name))
        except ConsoleError:  # a log that cannot be read says nothing
            return False
        last = next((entry for entry in rows if _is_about(entry, "/".join(key), name)), None)
        return last is not None and last.attempt.action != Remove.verb

    return reported


def _is_about(entry: AuditEntry, host: str, name: str) -> bool:
    attempt = entry.attempt
    if entry.outcome not in (Outcome.OK, Outcome.UNKNOWN, ""):
        return False
    names = (attempt.body.get("name"), attempt.target.partition("/name:")[2])
    return attempt.target.startswith(f"{host}/") and name in names
