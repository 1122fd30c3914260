"""Requests consent where the policy requires it, and passes on the user's answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Ask, Consent, Console

Answer = Callable[[Ask | None], Awaitable[bool]]
"""Shows the user a question, including the policy's if it has one, and returns whether they agree."""


def agreed(question: Ask | None = None) -> Consent:
    """Return the consent of a user who said yes, including to the policy's question if it had one."""
    return Consent(yes=True, confirm=question.token if question else "")


async def consent_to(console: Console, action: Action, target: Sandbox | None, answer: Answer) -> Consent | None:
    """Return the consent to an action, or None if the user does not agree.

    If the policy forbids the action, or cannot decide because its target does not answer, the action is still tried
    once they agree: the gate refuses it, and so it is on record.
    """
    try:
        decision = await console.decide(action, target)
    except ConsoleError:
        decision = None
    question = decision if isinstance(decision, Ask) else None
    return agreed(question) if await answer(question) else None
