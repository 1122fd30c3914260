"""The ids that a provider's own audit log gives to the requests of an action, for the action's row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IDS: ContextVar[list[str] | None] = ContextVar("remote_audit_ids", default=None)
_MOST = 8


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect the ids of requests within the block, also in tasks that it starts."""
    ids: list[str] = []
    token = _IDS.set(ids)
    try:
        yield ids
    finally:
        _IDS.reset(token)


def note(audit_id: str) -> None:
    """Note an id as the provider told it, if an action is under way. The first few are kept."""
    ids = _IDS.get()
    if ids is not None and audit_id and len(ids) < _MOST:
        ids.append(audit_id[:64])
