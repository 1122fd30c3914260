"""Authenticates callers, by a token of the console and the grant that an agent carries for its user."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from sandbox_console.errors import ConfigError, NotFound, Unsupported
from sandbox_console.model.access import AccessSource, full
from sandbox_console.service.people.rights import of_token, person
from sandbox_console.service.tokens import Tokens

GRANT_HEADER = "X-A2A-Grant"
_KEYS = ("A2A_GRANT_VERIFYING_KEY", "A2A_GRANT_SIGNING_KEY")
_LONGEST = 4096


class Unauthorized(Exception):
    """The caller is unknown."""


class Forbidden(Exception):
    """The caller's grant is not valid."""


class Caller(Struct, frozen=True):
    """The sender of a call. ``bucket`` is from the grant; it is empty if there is only a token.

    ``person`` is the user whose token it is, if it is somebody's, and ``rights`` what this person may do.
    """

    token: str
    subject: str
    bucket: str = ""
    person: str = ""
    rights: AccessSource = full

    @property
    def actor(self) -> str:
        """The name in the audit log: the person's, the grant's subject, or else the token's name."""
        if self.person:
            return f"api:{self.person}" + (f" for a2a:{self.subject}" if self.bucket else "")
        return f"a2a:{self.subject}" if self.bucket else f"token:{self.token}"


class Callers:
    """Identifies callers by their headers. ``audience`` are the agents whose grants are accepted; empty accepts all."""

    def __init__(self, tokens: Tokens, *, grants_required: bool, audience: Sequence[str] = ()) -> None:
        self._tokens = tokens
        self._required = grants_required
        self._audience = frozenset(audience)
        self._verify = _verifier(needed=grants_required)

    async def of(self, authorization: str, grant: str, *, acting: bool) -> Caller:
        """The caller who sent these headers. A call that acts needs a grant. Raises Unauthorized, Forbidden."""
        kind, _, text = authorization.partition(" ")
        token = await asyncio.to_thread(self._tokens.find, text.strip(), "api") if kind.lower() == "bearer" else None
        if token is None:
            raise Unauthorized("a token with the scope api is needed: Authorization: Bearer TOKEN")
        try:
            name, rights = person(self._tokens, token), of_token(self._tokens, token)
        except NotFound:
            raise Unauthorized("the user of this token was removed") from None
        if not grant:
            if acting and self._required:
                raise Unauthorized(f"a grant is needed in {GRANT_HEADER}")
            return Caller(token.name, token.name, "", name, rights)
        subject, bucket = self._granted(grant)
        return Caller(token.name, subject, bucket, name, rights)

    def _granted(self, grant: str) -> tuple[str, str]:
        if self._verify is None:
            raise Forbidden("this server verifies no grants")
        if len(grant) > _LONGEST:
            raise Forbidden("the grant is too long")
        try:
            found = self._verify(grant)
        except PermissionError as error:  # a2a_pack's GrantInvalid is a subclass
            raise Forbidden(f"the grant is not valid: {error}"[:200]) from None
        except Exception:  # noqa: BLE001 - whatever a forged one makes of a2a_pack, it is no good grant
            raise Forbidden("the grant is not valid") from None
        if self._audience and found.audience not in self._audience:
            raise Forbidden("the grant is for an agent that this server does not serve")
        if not found.audience or not found.bucket:
            raise Forbidden("the grant names no agent, or no bucket")
        return str(found.audience), str(found.bucket)


def _verifier(*, needed: bool) -> Callable[[str], Any] | None:
    """a2a_pack's own check of a grant. Raises Unsupported, ConfigError if it is needed and not available."""
    if not any(os.environ.get(name, "").strip() for name in _KEYS):
        if needed:
            hint = f'set {_KEYS[0]}, or [api] grants = "optional", which trusts tokens alone'
            raise ConfigError("grants cannot be verified: there is no key", hint=hint)
        return None
    try:
        from a2a_pack.grants import verify_grant
    except ImportError:
        hint = "pip install 'sandbox-console-tui[a2a]'"
        raise Unsupported("grants cannot be verified: a2a-pack is not installed", hint=hint) from None
    found: Callable[[str], Any] = verify_grant
    return found
