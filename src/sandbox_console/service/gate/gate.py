"""The one way to an effect: decide, commit the attempt, resolve secrets, act, record the outcome.

1. Faces cannot import backends (import-linter).
2. Every changing method of a backend takes a Permit.
3. A Permit is made in audit/journal.py only.
4. A new verb does not type-check until ``effects.dispatch.carry_out`` handles it.
5. No journal, no effect: the attempt is committed first, or nothing happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from sandbox_console.errors import (
    AuditUnavailable,
    BackendError,
    ConsoleError,
    Denied,
    NeedsConfirmation,
    SecretError,
    TimedOut,
    Unsupported,
)
from sandbox_console.model.action import Action, Create, Permit, Update
from sandbox_console.model.audit import Outcome
from sandbox_console.model.event import Acted
from sandbox_console.model.image import Snapshot
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.secret import ResolvedSecret
from sandbox_console.policy.rules import Allow, Ask, Decision, Deny, Rules
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.description import body_of, target_of
from sandbox_console.service.gate.operation import ExecIO, Operation
from sandbox_console.service.gate.redaction import Words, masked
from sandbox_console.service.gate.vault import Vault

if TYPE_CHECKING:  # see `gate.audit_log`
    from sandbox_console.audit.journal import Journal

T = TypeVar("T")


class Consent(Struct, frozen=True):
    """What the caller has agreed to: a plain yes, and the id typed to confirm."""

    yes: bool = False
    confirm: str = ""


class Performs(Protocol):
    """What carries an action out through the gate: the console."""

    def perform(self, action: Action, *, consent: Consent = ..., io: ExecIO | None = None) -> Operation:
        """Start an action. The returned operation reports its end."""
        ...


class Request(Struct, frozen=True):
    """An action with its target and the decision about it. ``problem`` is why there can be no decision.

    ``snapshot`` is what a sandbox is to be made from.
    """

    action: Action
    backend: str
    target: Sandbox | None
    decision: Decision
    consent: Consent = Consent()
    problem: ConsoleError | None = None
    snapshot: Snapshot | None = None


Effect = Callable[[Permit, list[ResolvedSecret]], Awaitable[T]]
Facts = Callable[[T], tuple[Outcome, Mapping[str, Any], str]]


class Gate:
    """The gate. Nothing is changed except through :meth:`run`. ``rules`` follow the configuration."""

    def __init__(self, audit_log: AuditLog, vault: Vault, publish: Callable[[Acted], None], rules: Rules) -> None:
        self.rules = rules
        self._audit_log = audit_log
        self._vault = vault
        self._publish = publish
        self._key = token_bytes(32)  # for this process only: the hashed words are recorded, masked, in the row's end

    async def run(self, request: Request, effect: Effect[T], facts: Facts[T]) -> T:
        """Carry out ``effect`` under a permit.

        Raises what the effect raises, Denied or Unsupported, each with a row, and AuditUnavailable, which has none.
        """
        try:
            journal = await self._audit_log.journal()
            refusal = request.problem or _refusal(request)
            if refusal is not None:
                await self._refuse(journal, request, refusal)
                raise refusal
            target, body, words = await self._row(request)
            permit = await journal.begin(request.action.verb, self._mask(request.backend), target, body)
            self._audit_log.note_problem("")
        except AuditUnavailable as error:
            self._audit_log.note_problem(error.message)
            raise
        return await self._act(journal, request, permit, words, effect, facts)

    async def _act(
        self, journal: Journal, request: Request, permit: Permit, words: Words | None, effect: Effect[T],
        facts: Facts[T],
    ) -> T:  # fmt: skip
        began = time.monotonic_ns()
        outcome, body, target = Outcome.FAILED, dict[str, Any](), ""
        try:
            secrets = await self._secrets(request)
            result = await effect(permit, secrets)
            outcome, facts_found, target = facts(result)
            body = dict(facts_found)
            return result
        except asyncio.CancelledError:
            outcome = Outcome.CANCELLED
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it has an outcome
            failure = self._failure(request, error)
            failure.audit_id = permit.audit_id
            outcome, body = _outcome_of(failure), {"code": failure.code, "error": failure.message}
            raise failure from (None if failure is error else error)
        finally:
            took = (time.monotonic_ns() - began) // 1000
            try:
                body = self._ended(request, words, body)
                await self._finish(journal, request, permit, outcome, took, body, target)
            except AuditUnavailable:
                if outcome is not Outcome.CANCELLED:  # stays a cancellation, even if the log cannot be written
                    raise

    def _ended(self, request: Request, words: Words | None, body: Mapping[str, Any]) -> dict[str, Any]:
        """The end's body, with the words that its attempt withheld if all values are known by now, else without."""
        if words is None:
            return self._masked(body)
        if self._unread(request):
            return self._masked(body, words.text)
        return self._masked({**words.arguments, **body})

    def _masked(self, body: Mapping[str, Any], more: Callable[[str], str] = str) -> dict[str, Any]:
        found: dict[str, Any] = masked(body, lambda text: more(self._mask(text)))
        return found

    async def _finish(
        self, journal: Journal, request: Request, permit: Permit, outcome: Outcome, dur_us: int, body: dict[str, Any],
        target: str,
    ) -> None:  # fmt: skip
        try:
            await journal.finish(permit, outcome, dur_us, body, target=target)
        except AuditUnavailable as error:
            self._audit_log.note_problem(error.message)
            error.message = (
                f"{request.action.verb} ended ({outcome}), but its outcome could not be recorded: {error.message}"
            )
            error.audit_id = permit.audit_id
            raise
        self._tell(request, permit.audit_id, outcome, str(body.get("error", "")), target)

    async def _refuse(self, journal: Journal, request: Request, refusal: ConsoleError) -> None:
        target, body, words = await self._row(request)
        refusal = self._failure(request, refusal)
        denial: dict[str, Any] = {"code": refusal.code, "error": refusal.message, "rule": getattr(refusal, "rule", "")}
        denial = masked(denial, words.text) if words else denial
        outcome = _outcome_of(refusal)
        action = request.action
        refusal.audit_id = await journal.refuse(action.verb, self._mask(request.backend), target, body, outcome, denial)
        self._tell(request, refusal.audit_id, outcome, refusal.message, "")

    def _tell(self, request: Request, audit_id: int, outcome: Outcome, message: str, target: str) -> None:
        action = request.action
        self._publish(Acted(audit_id, action.verb, target or target_of(action), outcome, message))

    def _failure(self, request: Request, error: Exception) -> ConsoleError:
        if isinstance(error, ConsoleError):
            error.message = self._mask(error.message)
            error.hint = self._mask(error.hint)
            error.args = (error.message,)
            return error
        text = self._mask(f"{type(error).__name__}: {error}")
        return BackendError(f"{request.action.verb} on {request.backend} failed unexpectedly: {text}")

    async def _secrets(self, request: Request) -> list[ResolvedSecret]:
        """Resolve the secrets. To enter a sandbox, those readable here suffice, unless the policy requires all."""
        names = self._secret_names(request)
        if not (self.rules.enter_without_secrets and request.action.verb in ("exec", "shell")):
            return await self._vault.resolve(names)
        secrets: list[ResolvedSecret] = []
        for name in names:
            with suppress(SecretError):
                secrets += await self._vault.resolve([name])
        return secrets

    def _secret_names(self, request: Request) -> list[str]:
        """The secrets of the requested spec, or the sandbox's own if it is entered, copied or started (again)."""
        action, own = request.action, request.target.spec.secrets if request.target and request.target.spec else ()
        if isinstance(action, (Create, Update)):
            gone = self._vault.undefined(own)
            return list(dict.fromkeys([*action.spec.secrets, *(name for name in own if name not in gone)]))
        if request.snapshot:
            return list(request.snapshot.secrets)
        return list(own) if action.verb in ("start", "restart", "exec", "shell", "fork") else []

    async def _row(self, request: Request) -> tuple[str, dict[str, Any], Words | None]:
        """The target and the body, both masked (even a name may hold a value), and the words hashed in the body."""
        # Values are read before the row is written, as one pasted into an argument must not get into the log. A keyring
        # or a program is used only once the attempt is on record.
        await self._vault.learn_plain()
        await self._vault.learn(self._names(request), acting=False)
        body = {**body_of(request.action, request.target), "policy": _decided(request.decision)}
        words = None
        if self._unread(request):  # the row's end has them, masked, once the values are read
            words = self._words(body)
            body = words.body
        return self._mask(target_of(request.action)), self._masked(body), words

    def _words(self, body: Mapping[str, Any]) -> Words:
        return Words(body, self._key, self.rules.hash_words_from, self._vault.names)

    async def sentence(self, text: str) -> str:
        """What somebody writes, as it may be kept and shown for long: masked, and with hashes if a value is unknown."""
        await self._vault.learn_plain()
        unread = self.rules.hash_words_for == "any" and self._vault.unread(self._vault.names, acting=True)
        return self._words({}).sentence(self._mask(text)) if unread else self._mask(text)

    def _mask(self, text: str) -> str:
        """Mask known values in a row, also in lower case, as hosts are written."""
        return self._vault.host(text)

    def _names(self, request: Request) -> list[str]:
        """The secrets whose values may be in the words: the sandbox's own, and all others if the policy says so."""
        own = self._secret_names(request)
        return own if self.rules.hash_words_for == "own" else list(dict.fromkeys([*own, *self._vault.names]))

    def _unread(self, request: Request) -> bool:
        """Whether the value of one of these is not known yet."""
        own = self._secret_names(request)
        return bool(self._vault.unread(own) or self._vault.unread(self._names(request), acting=True))


def _decided(decision: Decision) -> dict[str, str]:
    """The decision as it is recorded. Whether a person has confirmed is in the row's end."""
    match decision:
        case Allow():
            return {"decision": "allow"}
        case Ask(_, rule):
            return {"decision": "ask", "rule": rule}
        case Deny(_, rule):
            return {"decision": "deny", "rule": rule}


def _refusal(request: Request) -> ConsoleError | None:
    match request.decision:
        case Allow():
            return None
        case Deny(reason, rule, capability, hint):
            return Unsupported(reason, hint=hint) if capability else Denied(reason, rule=rule, hint=hint)
        case Ask(reason, rule, token):
            agreed = request.consent.confirm == token if token else request.consent.yes
            if agreed:
                return None
            hint = f"--confirm {token}" if token else "--yes"
            return NeedsConfirmation(f"{reason}; it was not confirmed", token=token, rule=rule, hint=hint)


def _outcome_of(error: ConsoleError) -> Outcome:
    if isinstance(error, Denied):
        return Outcome.DENIED
    if isinstance(error, Unsupported):
        return Outcome.UNSUPPORTED
    return Outcome.TIMED_OUT if isinstance(error, TimedOut) else Outcome.FAILED
