"""Records changes of the console's own settings, which concern no backend: silences, templates."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeVar

from sandbox_console.errors import ConsoleError, Denied
from sandbox_console.model.access import access
from sandbox_console.model.audit import Outcome
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.description import origin

T = TypeVar("T")


async def local_change(
    audit_log: AuditLog, verb: str, body: Mapping[str, Any], act: Callable[[], Awaitable[T]], *, read_only: bool
) -> T:
    """Act, with an attempt and its outcome in the audit log.

    Raises Denied if the console is ``read_only`` or if the person may not change what concerns everybody,
    AuditUnavailable, and what ``act`` raises.
    """
    journal = await audit_log.journal()
    body = {"origin": origin(), **body}
    if refusal := not_everybodys() or (read_only and Denied("this console is read-only", rule="policy.read_only")):
        denial = {"code": refusal.code, "error": refusal.message, "rule": refusal.rule}
        refusal.audit_id = await journal.refuse(verb, "", "", body, Outcome.DENIED, denial)
        raise refusal
    permit = await journal.begin(verb, "", "", body)
    began, outcome, end = time.monotonic_ns(), Outcome.CANCELLED, dict[str, Any]()
    try:
        result = await act()
        outcome = Outcome.OK
        return result
    except ConsoleError as error:
        outcome, end = Outcome.FAILED, {"code": error.code, "error": error.message}
        error.audit_id = permit.audit_id
        raise
    finally:
        await journal.finish(permit, outcome, (time.monotonic_ns() - began) // 1000, end)


def not_everybodys() -> Denied | None:
    """Why whoever acts may not change what concerns everybody: only an admin who sees everything may."""
    rights = access()
    if rights.role == "admin" and not rights.labels:
        return None
    return Denied(f"you are {rights.described}: this concerns everybody, and is for admins", rule="role")


async def refuse_files(audit_log: AuditLog) -> NoReturn:
    """Record that a person wanted files of the server's machine, and raise Denied."""
    refusal = Denied("files of the server's machine are for admins", rule="role")
    journal = await audit_log.journal()
    denial = {"code": refusal.code, "error": refusal.message, "rule": refusal.rule}
    refusal.audit_id = await journal.refuse("host-files", "", "", {"origin": origin()}, Outcome.DENIED, denial)
    raise refusal
