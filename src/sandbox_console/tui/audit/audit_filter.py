"""The audit screen's filter line: ``actor:``, ``action:``, ``outcome:``, ``backend:``, ``since:``, or plain text."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from sandbox_console.model.audit import AuditQuery, Outcome
from sandbox_console.model.quantities import parse_duration_s

FIELDS = ("actor", "action", "outcome", "backend", "target", "since")
TROUBLE = "denied,failed,unknown,timed_out"


def parse(text: str, now: float, limit: int) -> tuple[AuditQuery, str]:
    """Return the typed text as a query, and the part that cannot be understood."""
    query, problem, words = AuditQuery(limit=limit), "", []
    for word in text.split():
        name, colon, value = word.partition(":")
        if not colon or name not in FIELDS:
            words.append(word)
        elif value:
            try:
                query = _with(query, name, value, now)
            except ValueError as error:
                problem = str(error)
    return structs.replace(query, text=" ".join(words)), problem


def _with(query: AuditQuery, name: str, value: str, now: float) -> AuditQuery:
    if name == "since":
        return structs.replace(query, since=now - parse_duration_s(value))
    if name == "outcome":
        unknown = [word for word in value.split(",") if word not in set(Outcome)]
        if unknown:
            raise ValueError(f"outcome: {unknown[0]!r} is none of {', '.join(Outcome)}")
    changed: dict[str, Any] = {name: value}
    return structs.replace(query, **changed)
