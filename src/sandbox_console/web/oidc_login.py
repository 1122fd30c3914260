"""Logins at a provider: sends a browser there, takes it back, and hands the page a token for one login.

A browser that comes back is known by a cookie of its own, which is Lax: the way back is a link on the provider's site.
The login that it began is in that cookie, signed, and nowhere else: whoever begins very many takes nobody's place.
Who comes back is handed a token in the address's fragment, which the page exchanges like a printed one, so that the
login's cookie and key are only ever made by a request of our own page.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hmac import compare_digest, digest
from threading import Thread
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

from sandbox_console.service.oidc_options import OidcOptions
from sandbox_console.service.people.identity import Identity
from sandbox_console.web.oidc_client import Attempt, Provider, ProviderFailed

ATTEMPT_S = 600.0
HANDED_S = 60.0
MOST = 1024
ANSWER_S = 30.0
"""How long a login may wait for the provider, which is asked up to four times for it."""
ASKED_MOST = 16
"""How many threads may wait for the provider."""

T = TypeVar("T")


class OidcFailed(Exception):
    """Nobody is let in. The text says why, for the server's terminal."""


class _Begun(Struct, frozen=True):
    attempt: Attempt
    until: float


class _Handed(Struct, frozen=True):
    person: Identity
    browser: str
    until: float


class OidcLogins:
    """The logins at one provider that are under way. ``cookie_name`` is of the cookie that knows a browser again."""

    def __init__(
        self, options: OidcOptions, provider: Provider, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options, self._provider, self._clock = options, provider, clock
        self.cookie_name = f"sandbox_console_way_{secrets.token_hex(4)}"
        self.title = options.title
        self._key = secrets.token_bytes(32)
        self._asked = 0
        self._used: dict[str, None] = {}
        self._handed: dict[str, _Handed] = {}

    async def begin(self) -> tuple[str, str]:
        """Where to send a browser, and the value of the cookie that it gets. Raises OidcFailed."""
        try:
            attempt = await self._ask(self._provider.begin)
        except ProviderFailed as error:
            raise OidcFailed(str(error)) from error
        kept = msgspec.structs.replace(attempt, url="")
        return attempt.url, self._signed(_Begun(kept, self._clock() + ATTEMPT_S))

    async def come_back(self, state: str, code: str, browser: str) -> str:
        """A token for one login of who came back. Each state works once. Raises OidcFailed."""
        begun, used = self._begun(browser), state in self._used
        _keep(self._used, state, None)  # whoever shows it, and whatever comes of it
        if begun is None or not _same(begun.attempt.state, state):
            raise OidcFailed("this browser did not begin it, or began another one since")
        if used or self._clock() > begun.until:
            raise OidcFailed("it was used before, or is too old")
        if not code:
            raise OidcFailed("the provider let nobody in")
        try:
            claims, id_token = await self._ask(partial(self._provider.finish, begun.attempt, code))
        except ProviderFailed as error:
            raise OidcFailed(str(error)) from error
        name, access = self._options.name(claims), self._options.access(claims)
        if not name:
            raise OidcFailed(f"the claim {self._options.name_claim} has no name")
        if access is None:
            raise OidcFailed(f"{name!r} is in no group that has a role")
        token = secrets.token_urlsafe(32)
        person = Identity(f"oidc:{name}", access=access, proof=id_token)
        _keep(self._handed, token, _Handed(person, browser, self._clock() + HANDED_S))
        return token

    def _signed(self, begun: _Begun) -> str:
        data = msgspec.json.encode(begun)
        return base64.urlsafe_b64encode(digest(self._key, data, "sha256") + data).decode()

    def _begun(self, cookie: str) -> _Begun | None:
        """The login in a cookie that this server made; None if it did not make it."""
        try:
            made = base64.b64decode(cookie, altchars=b"-_", validate=True)
        except ValueError:
            return None
        signature, data = made[:32], made[32:]
        genuine = compare_digest(signature, digest(self._key, data, "sha256"))
        return msgspec.json.decode(data, type=_Begun) if genuine else None

    def redeem(self, token: str, browser: str) -> Identity | None:
        """Who was handed a token, if this is the browser that got it. It is used up either way."""
        handed = self._handed.pop(token, None)
        if handed is None or self._clock() > handed.until:
            return None
        return handed.person if _same(handed.browser, browser) else None

    async def leave(self, person: Identity | None, back: str) -> str:
        """Where a person logs out at the provider; empty if that is not possible."""
        if person is None or not person.proof:
            return ""
        try:
            return await self._ask(partial(self._provider.end_session, person.proof, back))
        except ProviderFailed:
            return ""

    async def _ask(self, call: Callable[[], T]) -> T:
        """Call the provider in a thread that nobody waits for longer than 30 s. Raises ProviderFailed.

        The page's own threads are not used: a provider that keeps all of its callers waiting holds up logins only.
        """
        if self._asked >= ASKED_MOST:
            raise ProviderFailed("the provider has not answered earlier requests yet")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def asking() -> None:
            try:
                found = partial(_settle, answer, result=call())
            except Exception as error:  # noqa: BLE001 - it is raised where the answer is waited for
                found = partial(_settle, answer, error=error)
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(self._answered, found)

        self._asked += 1
        Thread(target=asking, name="provider", daemon=True).start()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            raise ProviderFailed(f"the provider has not answered within {ANSWER_S:g} s") from None

    def _answered(self, settle: Callable[[], None]) -> None:
        self._asked -= 1
        settle()


def _settle(answer: asyncio.Future[T], result: T | None = None, error: Exception | None = None) -> None:
    if answer.done():  # nobody waits any more
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(cast("T", result))


def _same(known: str, shown: str) -> bool:
    """Whether a browser shows the cookie that it got. What was sent need not be text."""
    return compare_digest(known.encode(), shown.encode("utf-8", "surrogatepass"))


def _keep(where: dict[str, T], key: str, value: T) -> None:
    while len(where) >= MOST:
        del where[next(iter(where))]
    where[key] = value
