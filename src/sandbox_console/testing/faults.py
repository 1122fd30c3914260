"""Trouble on demand: each verb may fail or take its time, and the whole backend may be dead."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sandbox_console.errors import BackendUnreachable

Fault = BaseException | float
"""What a verb meets: an exception that it raises, or seconds that it takes."""


class Faults:
    """``verbs`` maps a method's name (``create``, ``list``) to its fault; both fields may be changed while in use."""

    def __init__(self, verbs: Mapping[str, Fault] | None = None, *, dead: bool = False, reason: str = "") -> None:
        self.verbs = dict(verbs or {})
        self.dead = dead
        self.reason = reason or "the fake backend is dead"

    async def meet(self, verb: str) -> None:
        """Let the verb meet its fault. Raises it, or BackendUnreachable where the backend is dead."""
        if self.dead:
            raise BackendUnreachable(f"the backend does not answer: {self.reason}", hint="revive it")
        fault = self.verbs.get(verb)
        if isinstance(fault, BaseException):
            raise fault
        if fault is not None:
            await asyncio.sleep(fault)
