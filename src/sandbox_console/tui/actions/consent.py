"""Requests consent where the policy requires it, and passes on the user's answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Ask, Consent, Console, Deny

Answer = Callable[[Ask | None], Awaitable[bool]]
"""Shows the user a question, including the policy's if it has one, and returns whether they agree."""


def agreed(question: Ask | None = None) -> Consent:
    """Return the consent of a user who said yes, including to the policy's question if it had one."""
    return Consent(yes=True, confirm=question.token if question else "")


async def consent_to(console: Console, action: Action, target: Sandbox | None, answer: Answer) -> Consent | None:
    """Return the consent to an action, or None if the user does not agree.

    They are not asked about an action that the policy or their role forbids. It is tried without any consent, so that
    the gate refuses it and it is on record. If the policy cannot decide because the target does not answer, it is
    tried once they agree.
    """
    try:
        decision = await console.decide(action, target)
    except ConsoleError:
        decision = None
    if isinstance(decision, Deny):
        return Consent()
    question = decision if isinstance(decision, Ask) else None
    return agreed(question) if await answer(question) else None
