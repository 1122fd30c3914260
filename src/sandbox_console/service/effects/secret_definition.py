"""Defines secrets in the configuration, and removes them. Each change leaves a row in the audit log, never a value."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox_console.errors import (
    ConfigError,
    ConsoleError,
    Denied,
    InvalidSpec,
    NeedsConfirmation,
    NotFound,
    SecretError,
)
from sandbox_console.model.audit import Outcome
from sandbox_console.model.cancellation import run_to_completion
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets import keyrings, sources
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import config_file
from sandbox_console.service.config_reload import ConfigReload
from sandbox_console.service.gate.audit_log import AuditLog
from sandbox_console.service.gate.description import origin
from sandbox_console.service.gate.local_change import not_everybodys
from sandbox_console.service.gate.redaction import masked
from sandbox_console.service.gate.vault import Vault

DEFINE, UNDEFINE = "define-secret", "undefine-secret"
"""The verbs of the audit log's rows, which ``policy.deny`` and ``policy.ask`` may name."""


class SecretDefinition(Struct, frozen=True):
    """A new ``[secrets.NAME]`` table. ``value`` is stored in the keyring, if the source is one, and nowhere else."""

    name: str
    source: SecretSource
    value: str = ""

    def __repr__(self) -> str:
        return f"SecretDefinition({self.name!r}, {self.source!r})"

    @property
    def table(self) -> dict[str, Any]:
        """The table as it is written to the configuration. What has its default is left out."""
        found: dict[str, Any] = {"from": self.source.source}
        if self.source.inject != "auto":
            found["inject"] = self.source.inject
        return found | ({"hosts": list(self.source.hosts)} if self.source.hosts else {})


class SecretDefinitions:
    """The secrets that the configuration defines, for a console that follows its file. ``rules`` are the policy's."""

    def __init__(self, vault: Vault, audit_log: AuditLog, rules: Callable[[], Rules]) -> None:
        self._vault, self._audit_log, self._rules = vault, audit_log, rules
        self.follows: ConfigReload | None = None

    @property
    def path(self) -> Path | None:
        """The file that is changed; None if the console was opened with a configuration that is in no file."""
        return self.follows.path if self.follows else None

    def problems(self, definition: SecretDefinition) -> Mapping[str, str]:
        """What is wrong with a definition, by field: ``name``, ``from``, ``hosts``, ``value``. Reads no value."""
        found = sources.definition_problem(definition.name, definition.source)
        if definition.name in self._vault.table:
            found.setdefault("name", f"{definition.name} is defined already")
        if definition.value and definition.source.kind != "keyring":
            found["value"] = "a value can only go into the keyring"
        elif definition.value:
            try:
                sources.check(definition.name, definition.value)
            except SecretError as error:
                found["value"] = error.message
        return found

    async def checked(self, definition: SecretDefinition) -> str:
        """Read the value that a definition leads to. Returns why that is not possible; empty if it is."""
        try:
            await self._vault.check(definition.name, definition.source)
        except SecretError as error:
            return f"{error.message}; {error.hint}" if error.hint else error.message
        return ""

    async def define(self, definition: SecretDefinition, *, agreed: bool = False) -> None:
        """Write a definition to the configuration, and its value to the keyring. It can be used at once.

        Raises InvalidSpec, Denied, SecretError, Conflict, ConfigError, AuditUnavailable.
        """
        if definition.value:
            self._vault.mask([definition.value])

        async def act(path: Path) -> None:
            if wrong := self.problems(definition):
                raise InvalidSpec(wrong)
            if definition.value:
                text = definition.source.source.partition(":")[2]
                await keyrings.store(text, definition.value, definition.source.timeout_s)
            await asyncio.to_thread(config_file.add_table, path, "secrets", definition.name, definition.table)

        stored = {"value": "stored in the keyring"} if definition.value else {}
        body = {"secret": definition.name} | definition.table | {"from": definition.source.shown} | stored
        await self._recorded(DEFINE, body, act, agreed=agreed)

    async def remove(self, name: str, *, agreed: bool = False) -> None:
        """Remove a definition from the configuration. Its value stays where it is. Raises as `define`, NotFound."""

        async def act(path: Path) -> None:
            await asyncio.to_thread(config_file.remove_table, path, "secrets", name)

        try:
            await self._recorded(UNDEFINE, {"secret": name}, act, agreed=agreed)
        except NotFound as error:
            error.hint = "sandbox-console secrets ls"
            raise

    async def _recorded(
        self, verb: str, body: Mapping[str, Any], act: Callable[[Path], Coroutine[Any, Any, None]], *, agreed: bool
    ) -> None:
        """Record the attempt, act, and record how it ended."""
        follows = self.follows
        if follows is None:
            raise ConfigError("this console has no configuration file to change", hint="change what it was opened with")
        journal = await self._audit_log.journal()
        target, details = str(follows.path), masked({"origin": origin(), **body}, self._vault.redactor.text)
        if refusal := self._refusal(verb, agreed=agreed):
            denial = {"code": refusal.code, "error": refusal.message, "rule": refusal.rule}
            refusal.audit_id = await journal.refuse(verb, "", target, details, Outcome.DENIED, denial)
            raise refusal
        permit = await journal.begin(verb, "", target, details)
        began, outcome, end = time.monotonic_ns(), Outcome.FAILED, dict[str, Any]()
        try:
            await run_to_completion(act(follows.path))
            outcome = Outcome.OK
        except asyncio.CancelledError:
            outcome = Outcome.CANCELLED
            raise
        except ConsoleError as error:
            end, error.audit_id = {"code": error.code, "error": error.message}, permit.audit_id
            raise
        finally:
            end = masked(end, self._vault.redactor.text)
            await journal.finish(permit, outcome, (time.monotonic_ns() - began) // 1000, end)
        await follows.read(own=True)

    def _refusal(self, verb: str, *, agreed: bool) -> Denied | None:
        rules = self._rules()
        if refusal := not_everybodys():
            return refusal
        if rules.read_only:
            return Denied("the console is read-only", rule="policy.read_only", hint="start it without --read-only")
        if verb in rules.deny:
            return Denied(f"the policy denies {verb}", rule="policy.deny")
        if verb in rules.ask and not agreed:
            text = f"the policy asks before {verb}; it was not confirmed"
            return NeedsConfirmation(text, token="", rule="policy.ask", hint="--yes")
        return None
