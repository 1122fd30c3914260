"""Hides known secrets in the descriptions of sandboxes that faces get, and undoes that in the specs that come back.

A value may stand in a spec as plain text, because a person pasted it or another tool put it there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from sandbox_console.model.action import Action, Create, Exec, Update
from sandbox_console.model.event import Changed, Event, Listed
from sandbox_console.model.sandbox import Sandbox, SandboxRef, spec_of
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets import visible_text
from sandbox_console.secrets.redactor import MASK
from sandbox_console.service.gate.vault import Vault

_MASK = MASK.decode()
_TOGETHER = 50
_OTHER = f"{_MASK} (another)"
_KEPT = ("name", "secrets")
"""Fields that are never masked: the names of sandboxes and of secrets."""

Pairs = Sequence[tuple[Any, Any]]
"""Masked values, each with what it stands for."""


class Masking:
    """Masks descriptions with every value that the vault knows."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._originals: dict[SandboxRef, Sandbox] = {}

    async def ready(self) -> None:
        """Read the values that need no program, so that they are masked. Cheap if that was done within a second."""
        await self._vault.learn_plain()

    def sandbox(self, sandbox: Sandbox) -> Sandbox:
        """A sandbox as a face may see it: the same object if nothing is masked in it."""
        if not self._suspect(sandbox):
            self._originals.pop(sandbox.ref, None)
            return sandbox
        masked = self._masked(sandbox)
        if masked == sandbox:
            self._originals.pop(sandbox.ref, None)
            return sandbox
        self._originals[sandbox.ref] = sandbox
        return masked

    def sandboxes(self, sandboxes: Sequence[Sandbox]) -> list[Sandbox]:
        """Several sandboxes as a face may see them. Without values in them, 1,000 take 1 ms."""
        found: list[Sandbox] = []
        for at in range(0, len(sandboxes), _TOGETHER):
            some = sandboxes[at : at + _TOGETHER]
            clear = not self._originals and not self._suspect(some)
            found += some if clear else map(self.sandbox, some)
        return found

    def event(self, event: Event) -> Event:
        """An event with its sandboxes masked."""
        match event:
            case Changed(sandbox):
                masked = self.sandbox(sandbox)
                return event if masked is sandbox else Changed(masked)
            case Listed(sandboxes=sandboxes):
                found = tuple(self.sandboxes(sandboxes))
                same = all(one is other for one, other in zip(found, sandboxes, strict=True))
                return event if same else structs.replace(event, sandboxes=found)
        return event

    def original(self, sandbox: Sandbox) -> Sandbox:
        """What a masked sandbox stands for; the sandbox itself if nothing is masked in it."""
        return self._originals.get(sandbox.ref, sandbox)

    def spec(self, spec: SandboxSpec) -> SandboxSpec:
        """A spec with known values masked."""
        values = {name: self._field(name, getattr(spec, name)) for name in spec.__struct_fields__ if name not in _KEPT}
        return structs.replace(spec, **values)

    def action(self, action: Action) -> Action:
        """An action as a face may show it before it is carried out."""
        match action:
            case Create(spec=spec) | Update(spec=spec):
                return structs.replace(action, spec=self.spec(spec))
            case Exec(argv=argv):
                return structs.replace(action, argv=self.value(argv))
        return action

    def ends(self, field: str, before: Any, after: Any) -> tuple[Any, Any]:
        """Both ends of a change of a field, masked. A change from one value to another still shows as one."""
        return self._field(field, before), _apart(before, after, self._field(field, after))

    def restored(self, spec: SandboxSpec, sandbox: Sandbox, *, adopts: bool = False) -> SandboxSpec:
        """A spec in which masks that came from ``sandbox``, which is not masked, are its values again.

        What was asked comes before what was found, unless the spec ``adopts`` what was found.
        """
        masked = self.sandbox(sandbox)
        if masked is sandbox:
            return spec
        asked = spec_of(masked), spec_of(sandbox)
        values: dict[str, Any] = {}
        for name in spec.__struct_fields__:
            if name in _KEPT:
                continue
            pairs = [(getattr(asked[0], name), getattr(asked[1], name))]
            if name in sandbox.found:
                pairs.insert(0 if adopts else 1, (masked.found[name], sandbox.found[name]))
            values[name] = _restored(getattr(spec, name), pairs)
        return structs.replace(spec, **values)

    def _suspect(self, sandboxes: Sandbox | Sequence[Sandbox]) -> bool:
        """Whether a value may be in descriptions. Masking every text of one takes 20 times as long."""
        redactor = self._vault.redactor
        if not redactor.active:
            return False
        try:
            data = msgspec.json.encode(sandboxes)
        except (TypeError, ValueError):  # lone surrogates
            return True
        return b"\\" in data or not visible_text.plain(data) or self._vault.holds(data)

    def _masked(self, sandbox: Sandbox) -> Sandbox:
        mask = self._vault.redactor.text
        spec = None if sandbox.spec is None else self.spec(sandbox.spec)
        found = {key: value if key in _KEPT else self._field(key, value) for key, value in sandbox.found.items()}
        if spec is not None and sandbox.spec is not None:
            for key in found.keys() & set(spec.__struct_fields__) - {*_KEPT}:
                found[key] = _apart(getattr(sandbox.spec, key), sandbox.found[key], found[key])
        return structs.replace(
            sandbox,
            image=mask(sandbox.image), labels=self.value(sandbox.labels), spec=spec, found=found,
            effective=tuple(
                structs.replace(fact, value=mask(fact.value), note=mask(fact.note)) for fact in sandbox.effective
            ),
            untold=self.value(sandbox.untold), detail=mask(sandbox.detail), maker=mask(sandbox.maker),
            exit=sandbox.exit and structs.replace(sandbox.exit, reason=mask(sandbox.exit.reason)),
            quarantine=mask(sandbox.quarantine),
        )  # fmt: skip

    def _field(self, name: str, value: Any) -> Any:
        """A field of a spec masked. Hosts are stored in lower case, whatever a value looks like."""
        if name != "egress" or not isinstance(value, tuple):
            return self.value(value)
        return tuple(self._vault.host(one) if isinstance(one, str) else one for one in value)

    def value(self, value: Any) -> Any:
        """A value of a spec with every text in it masked."""
        if isinstance(value, str):
            return self._vault.redactor.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self.value(one) for one in value)
        return value


def left_masked(spec: SandboxSpec, before: SandboxSpec | None = None) -> dict[str, str]:
    """A problem for each field of a spec in which a mask stands for a value, unless ``before`` has it as well."""
    known = set(_texts(before)) if before is not None else set()
    found: dict[str, str] = {}
    for name in spec.__struct_fields__:
        if any(_MASK in text and text not in known for text in _leaves(getattr(spec, name))):
            found[name] = f"{_MASK} stands for a value that was masked: name the secret in secrets, or give the value"
    return found


def _texts(spec: SandboxSpec) -> Iterator[str]:
    for name in spec.__struct_fields__:
        yield from _leaves(getattr(spec, name))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from (key, *_leaves(one))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)


def _apart(one: Any, other: Any, masked: Any) -> Any:
    """``masked``, which stands for ``other``, marked where ``one`` is another value: both have the same mask."""
    if isinstance(other, str):
        return masked.replace(_MASK, _OTHER) if one != other and isinstance(one, str) and _MASK in masked else masked
    if isinstance(other, Mapping) and isinstance(one, Mapping) and len(masked) == len(other):
        pairs = zip(other.items(), masked.items(), strict=True)
        return {key: _apart(one.get(true), value, shown) for (true, value), (key, shown) in pairs}
    if isinstance(other, (list, tuple)) and isinstance(one, (list, tuple)) and len(one) == len(other):
        return type(other)(map(_apart, one, other, masked))
    return masked


def _restored(value: Any, pairs: Pairs) -> Any:
    for masked, true in pairs:
        if value == masked:
            return true
    if isinstance(value, Mapping):
        return dict(_entry(key, one, pairs) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(_restored(one, _beside(at, pairs)) for at, one in enumerate(value))
    return value


def _entry(key: str, value: Any, pairs: Pairs) -> tuple[str, Any]:
    for masked, true in pairs:
        if isinstance(masked, Mapping) and key in masked and len(masked) == len(true):
            name = list(true)[list(masked).index(key)]
            return name, _restored(value, [(masked[key], true[name])])
    return key, value


def _beside(at: int, pairs: Pairs) -> Pairs:
    """The parts of the pairs at a place first, then all others, as words may have moved."""
    lists = [pair for pair in pairs if isinstance(pair[0], (list, tuple)) and len(pair[0]) == len(pair[1])]
    here = [(masked[at], true[at]) for masked, true in lists if at < len(masked)]
    return [*here, *(pair for masked, true in lists for pair in zip(masked, true, strict=True))]
