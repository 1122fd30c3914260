"""Asks for consent where the policy wants it, and passes the person's answer on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Ask, Consent, Console

Answer = Callable[[Ask | None], Awaitable[bool]]
"""Asks a person, with the policy's question where it has one, and tells whether they agree."""


def agreed(question: Ask | None = None) -> Consent:
    """The consent of a person who said yes, to the policy's question where it had one."""
    return Consent(yes=True, confirm=question.token if question else "")


async def consent_to(console: Console, action: Action, target: Sandbox | None, answer: Answer) -> Consent | None:
    """The consent to an action; None where the person does not agree.

    What the policy forbids, or cannot decide because its target does not answer, is tried all the same once they
    agree: the gate refuses it, and so it is on record.
    """
    try:
        decision = await console.decide(action, target)
    except ConsoleError:
        decision = None
    question = decision if isinstance(decision, Ask) else None
    return agreed(question) if await answer(question) else None
