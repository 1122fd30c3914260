"""What the channels share: how a secret is read, and the error that a message did not arrive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandbox_console.errors import ConsoleError

Reveal = Callable[[str], Awaitable[str]]
"""Returns the value of a ``[secrets.NAME]`` table. Raises SecretError."""


class NotDelivered(ConsoleError):
    """A message has not arrived. ``again_s`` is how long the receiver wants it to wait, if it says so."""

    def __init__(self, message: str, *, hint: str = "", again_s: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.again_s = again_s
