"""The fields of the form of several sandboxes: what all have is the value, and what differs is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sandbox_console.model.sandbox import HostKey, Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import FIELDS, Kind, SpecField
from sandbox_console.model.text import clean
from sandbox_console.service import Console, spec_of
from sandbox_console.tui.form.egress_row import EgressRow
from sandbox_console.tui.form.form_body import FormBody
from sandbox_console.tui.form.form_draft import Draft
from sandbox_console.tui.form.form_rows import ChoiceRow, FormRow
from sandbox_console.tui.form.secrets_row import SecretsRow
from sandbox_console.tui.form.shared_fields import NONE, shared_fields, with_changes
from sandbox_console.tui.text.form_values import two_valued

_SHOWN = 3
"""How many differing values a hint names."""


class SharedBody(FormBody):
    """A row for each field but the name. Only what is changed is applied, to each of them."""

    def __init__(
        self, sandboxes: Sequence[Sandbox], service: Console, draft: Draft, clock: Callable[[], float]
    ) -> None:  # fmt: skip
        super().__init__(None, {}, (), service, draft, clock)
        self._specs = [spec_of(one) for one in sandboxes]
        self.shared = shared_fields(self._specs)
        places = {(one.ref.backend, one.ref.host) for one in sandboxes}
        self._one_host = places.pop() if len(places) == 1 else None

    @property
    def fields(self) -> Sequence[SpecField]:
        return [field for field in FIELDS if field.name in self.shared]

    @property
    def texts(self) -> Mapping[str, str]:
        return {name: one.text for name, one in self.shared.items()}

    @property
    def host(self) -> HostKey | None:
        """Where all of them are, or None if they are in several places."""
        return self._one_host

    def row(self, field: SpecField, text: str) -> FormRow:
        others, typed = self.shared[field.name].others, self._draft.texts.get(field.name)
        if not others:
            return super().row(field, text) if field.name != "image" or self.host else FormRow(field, text, field.hint)
        hint = _hint(field, others)
        if two_valued(field):
            return ChoiceRow(field, text, " and ".join(others), typed=typed)
        match field.name:
            case "egress":
                ip = self._service.config.policy.egress_ip
                return EgressRow(field, text, hint, "", typed, None, allow_ip=ip)
            case "secrets":
                notes = {name: self._some(name) for name in others}
                return SecretsRow(field, text, "", typed, lambda: self._service.secrets.defined, notes)
        shown = field._replace(hint=hint)
        return super().row(shown, text) if field.name != "image" or self.host else FormRow(shown, text, hint, "", typed)

    def _some(self, secret: str) -> str:
        count = sum(secret in spec.secrets for spec in self._specs)
        return f"{count} of {len(self._specs)} have it; a tick gives it to all"

    def changed(self, spec: SandboxSpec) -> tuple[SandboxSpec, dict[str, str]]:
        """Return one spec with the changes, and the problems of texts that cannot be read."""
        return with_changes(spec, self.typed, self.shared)


def _hint(field: SpecField, others: Sequence[str]) -> str:
    """Return what differs, for an empty line."""
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    listed = clean(f"{', '.join(others[:_SHOWN])}{more}", cap=120)
    if field.kind in (Kind.LIST, Kind.TABLE):
        return f"adds to all; only some have {listed}"
    return f"differs: {listed}; {NONE} unsets it"
