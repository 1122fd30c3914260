"""Checks an action before it is carried out: its target, what it requests, and the policy's answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from msgspec import structs

from sandbox_console.errors import BackendError, ConsoleError, InvalidSpec, Unsupported
from sandbox_console.model import check, ports
from sandbox_console.model.access import access
from sandbox_console.model.action import (
    Action,
    ChangeEgress,
    Commit,
    Create,
    DenyEgress,
    Exec,
    Fork,
    Forward,
    OpenShell,
    Rename,
    Update,
    place_of,
    ref_of,
)
from sandbox_console.model.egress_rules import rule_problems
from sandbox_console.model.host_action import RestoreSnapshot
from sandbox_console.model.image import Snapshot, tagged
from sandbox_console.model.sandbox import Sandbox, spec_of
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.policy import roles
from sandbox_console.policy.decide import decide
from sandbox_console.policy.rules import Decision, Deny, Rules
from sandbox_console.service.effects.change_plan import differing
from sandbox_console.service.gate.gate import Consent, Request
from sandbox_console.service.gate.quarantine_store import REFUSED, Holds
from sandbox_console.service.gate.vault import Vault
from sandbox_console.service.reads.fleet import Fleet
from sandbox_console.service.reads.folder_guard import FolderGuard
from sandbox_console.service.reads.inspection import Inspection
from sandbox_console.service.reads.masking import Masking, left_masked


class Admission:
    """Turns an action into a request that the gate can record, and carry out if it is allowed. Changes nothing.

    ``policy`` is replaced when the configuration changes.
    """

    def __init__(
        self, fleet: Fleet, inside: Inspection, vault: Vault, shares: FolderGuard, policy: Rules, holds: Holds,
        masking: Masking,
    ) -> None:  # fmt: skip
        self._fleet, self._inside, self._vault, self._shares, self.policy = fleet, inside, vault, shares, policy
        self._holds, self._masking = holds, masking

    async def request(self, action: Action, consent: Consent) -> Request:
        """Find the target and decide. An error on the way is part of the request, so that it is recorded as well."""
        backend = place_of(action)[0]
        action = labelled(action)
        target: Sandbox | None = None
        snapshot: Snapshot | None = None
        try:
            if (ref := ref_of(action)) is not None:
                target = await self._fleet.inspect(ref)
            if isinstance(action, Update) and target is not None:
                spec = self._masking.restored(action.spec, target, adopts=action.drift == "adopt")
                action = structs.replace(action, spec=spec)
            if isinstance(action, RestoreSnapshot):
                snapshot = await self._inside.snapshot(action.backend, action.host, action.snapshot)
            if denial := roles.forbidden(action, access(), target) or await self._replaces(action):
                return Request(action, backend, target, denial, consent)
            await self._check(action, target)
            decision = await self.decide(action, target)
        except ConsoleError as error:
            return Request(action, backend, target, Deny(error.message, "request"), consent, error)
        except Exception as error:  # noqa: BLE001 - a bug of a backend's leaves its row like any other failure
            failure = BackendError(f"{backend} failed unexpectedly: {type(error).__name__}: {error}")
            return Request(action, backend, target, Deny(failure.message, "request"), consent, failure)
        return Request(action, backend, target, decision, consent, snapshot=snapshot)

    async def decide(self, action: Action, target: Sandbox | None) -> Decision:
        """What the role of whoever acts and the policy say. Raises ConsoleError if its host is not known."""
        if denial := roles.forbidden(labelled(action), access(), target) or await self._replaces(action):
            return denial
        if denial := await asyncio.to_thread(self._held, action, target):
            return denial
        capabilities = (await self._fleet.use(*place_of(action))).capabilities()
        injects = self._vault.injects(capabilities)
        return decide(action, self.policy, capabilities, target=target, injects=injects)

    async def _replaces(self, action: Action) -> Deny | None:
        """Why a person may not commit to a name that an image has: everybody's next sandboxes would be made of it."""
        rights = access()
        if not isinstance(action, Commit) or (rights.role == "admin" and not rights.labels):
            return None
        try:
            there = await self._inside.images(*place_of(action))
        except Unsupported:  # what has no list of images makes none, or none that others would use
            return None
        if all(tagged(action.image) != tagged(name) for image in there for name in image.names):
            return None
        text = f"an image is called {action.image} already, and to replace it concerns everybody: it is for admins"
        return Deny(text, roles.RULE, hint="choose another name")

    def _held(self, action: Action, target: Sandbox | None) -> Deny | None:
        """Why an action is denied on a sandbox in quarantine."""
        ref = ref_of(action) if action.verb in REFUSED else None
        if ref is None or (hold := self._holds.get(ref)) is None:
            return None
        name = target.name if target else hold.name or str(ref)
        hint = f"sandbox-console quarantine --undo {name} ends the quarantine"
        return Deny(f"{name} is {hold.label}", "quarantine", hint=hint)

    async def problems(self, spec: SandboxSpec, backend: str, host: str) -> Mapping[str, str]:
        """What is wrong with a spec, by field; empty when nothing is."""
        found = check.problems(spec, allow_ip=self.policy.egress_ip)
        if unknown := self._vault.undefined(spec.secrets):
            found["secrets"] = f"{unknown[0]!r} is not defined in the config"
        asked = await self._fleet.use(backend, host)
        offered = await asyncio.to_thread(asked.validate, spec)
        folders = await self._shares.problems(spec)
        return {**{field: text for field, text in offered.items() if text}, **folders, **found}

    async def _check(self, action: Action, target: Sandbox | None) -> None:
        """Raise InvalidSpec for what no backend could carry out."""
        wrong: Mapping[str, str] = {}
        hint = ""
        match action:
            case Create() | Update():
                if unknown := self._vault.undefined(action.spec.secrets):
                    hint = f"define it: sandbox-console secrets add {unknown[0]}"
                masks = left_masked(action.spec, spec_of(target) if target is not None else None)
                wrong = {**await self.problems(action.spec, *place_of(action)), **masks}
                if target is not None and target.spec is None:  # another tool's choices are not ours to judge
                    wrong = differing(target, action.spec, wrong)
            case ChangeEgress() | DenyEgress():
                wrong = rule_problems(action, allow_ip=self.policy.egress_ip)
            case Rename() | Fork() | RestoreSnapshot():
                wrong = {"name": off} if (off := check.name_problem(action.name)) else {}
            case Exec():
                wrong = check.command_problems(action.argv, action.env, action.workdir)
            case OpenShell(command=str() as command):
                wrong = check.command_problems((command,), action.env, action.workdir)
            case Forward():
                wrong = {"port": off} if (off := await self._forward_problem(action, target)) else {}
        if wrong:
            raise InvalidSpec(wrong, hint=hint if "secrets" in wrong else "")

    async def _forward_problem(self, action: Forward, target: Sandbox | None) -> str:
        try:
            ports.parse(str(action.published))
        except ValueError as error:
            return str(error)
        if target is None or target.spec is None or not target.spec.egress:
            return ""
        backend = await self._fleet.use(target.ref.backend, target.ref.host)
        spec = structs.replace(target.spec, ports=(str(action.port),))  # only the guest may use the gateway's own port
        return (await asyncio.to_thread(backend.validate, spec)).get("ports", "")


def labelled(action: Action) -> Action:
    """A create with the labels of whoever acts, as this person could not see the sandbox without them."""
    if not isinstance(action, Create) or not (needed := access().labels):
        return action
    missing = {key: value for key, value in needed.items() if key not in action.spec.labels}
    spec = structs.replace(action.spec, labels={**action.spec.labels, **missing})
    return structs.replace(action, spec=spec)
