"""Single-use tickets, which a page needs in addition to its cookie to open a websocket."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from msgspec import Struct

from sandbox_console.web.logins import Login

TICKET_S = 20.0
MOST_TICKETS = 64


class TerminalRequest(Struct, frozen=True):
    """What the page requests: a terminal of this size, and the app that it had before, if any."""

    columns: int
    rows: int
    view: str | None = None
    touch: bool = False
    """Whether a finger points at it."""


class Tickets:
    """The unused tickets. Each is valid once, for one login, within 20 seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, tuple[Login, TerminalRequest, float]] = {}

    def issue(self, login: Login, order: TerminalRequest) -> str:
        """Make a new ticket. With more than 64 unused ones, the oldest becomes invalid."""
        while len(self._open) >= MOST_TICKETS:
            del self._open[next(iter(self._open))]
        ticket = secrets.token_urlsafe(24)
        self._open[ticket] = (login, order, self._clock() + TICKET_S)
        return ticket

    def redeem(self, ticket: str, login: Login) -> TerminalRequest | None:
        """The order of a ticket; None if it is unknown, used, too old or another login's. It is used up either way."""
        owner, order, until = self._open.pop(ticket, (None, None, 0.0))
        return order if owner is login and self._clock() < until else None
