"""The part of the form that opens dialogs: presets, hosts from denials, and a new secret."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from textual import on
from textual.widgets import Button

from sandbox_console.errors import ConsoleError
from sandbox_console.model.sandbox import BackendHealth
from sandbox_console.model.spec_fields import Section
from sandbox_console.service import Feed, HostSeen, find_paths
from sandbox_console.service.presets import load_presets
from sandbox_console.tui.form.egress_row import EgressRow
from sandbox_console.tui.form.entry_list import Entry
from sandbox_console.tui.form.form_section import FormSection
from sandbox_console.tui.form.host_choice import HostChoice
from sandbox_console.tui.form.kept_form import KeptForm
from sandbox_console.tui.form.secret_dialog import SecretScreen
from sandbox_console.tui.form.secrets_row import SecretsRow

_DEFAULT_PORTS = {80, 443}
_Dialog = Callable[[], Awaitable[HostChoice]]


class FormTools(KeptForm):
    """A form with lists of hosts and secrets. The keys work in every field."""

    def action_network(self) -> None:
        """Go to the line that adds a host."""
        self._unfold(Section.NETWORK)
        self.query_one("#field-egress").focus()

    def _unfold(self, section: Section) -> None:
        for one in self.query(FormSection):
            if one.section is section:
                one.collapsed = False

    @on(Button.Pressed, "#presets")
    def action_presets(self) -> None:
        """Choose hosts from presets."""
        self._choose(self._presets)

    @on(Button.Pressed, "#denials")
    def action_denials(self) -> None:
        """Choose hosts from what sandboxes were denied."""
        self._choose(self._denials)

    def _choose(self, dialog: _Dialog) -> None:
        if self.app.screen is self:
            self.app.run_worker(self._chosen(dialog), group="choose", exclusive=True)

    async def _chosen(self, dialog: _Dialog) -> None:
        patterns = await self.app.push_screen_wait(await dialog())
        if patterns and self.is_attached:
            self._unfold(Section.NETWORK)
            self.query_one(EgressRow).add(patterns)
            self.query_one("#field-egress").focus()

    async def _presets(self) -> HostChoice:
        path = self._service.reload.path if self._service.reload else find_paths().config_file
        presets, problem = await asyncio.to_thread(load_presets, path)
        told = f"Yours are in {path.with_name('presets.toml')} (docs/egress.md has the format)."
        if problem:
            told = f"! Yours are not used: {problem}"
        offered = [
            (Entry(one.title, f"{' '.join(one.hosts)}  ({one.source or 'no source'})"), one.hosts) for one in presets
        ]
        return HostChoice("Add hosts from presets", told, offered)

    async def _denials(self) -> HostChoice:
        silent: list[str] = []

        def answered(healths: Sequence[BackendHealth]) -> None:
            silent.extend(f"{one.backend} does not answer" for one in healths if not one.ok)

        feed = Feed()
        with suppress(ConsoleError):
            async for sandbox, record in self._service.egress.feed(answered=answered):
                feed.add(sandbox.ref, sandbox.name, record)
        own = self._sandbox.ref if self._sandbox else None
        seen = [one for one in feed.hosts() if one.denied or one.asker]
        seen.sort(key=lambda one: (own not in one.refs, -one.denied_at))
        told = "Denied so far, newest first" + (", this sandbox's own before the others'." if own else ".")
        told = " ".join([told if seen else "No sandbox was denied anything so far.", *silent])
        return HostChoice("Add hosts that were denied", told, [(_denied(one), _patterns(one)) for one in seen])

    @on(Button.Pressed, "#new-secret")
    def action_new_secret(self) -> None:
        """Define a secret in the configuration, and choose it."""
        if self.app.screen is self:
            self.app.run_worker(self._new_secret(), group="choose", exclusive=True)

    async def _new_secret(self) -> None:
        name = await self.app.push_screen_wait(SecretScreen(self._service.definitions))
        if name and self.is_attached:
            self._unfold(Section.SECRETS)
            row = self.query_one(SecretsRow)
            row.choose(name)
            row.focus_entry()
            self.notify(f"{name} is defined, and chosen for this sandbox")
            self.run_worker(self.read_secrets(), group="secrets", exclusive=True)

    async def read_secrets(self) -> None:
        """Find out which secrets can be read, of those whose reading asks the user nothing."""
        found: dict[str, str] = {}
        for one in self._service.secrets.defined:
            if one.kind in ("env", "file", "value"):
                found[one.name] = (await self._service.secrets.checked(one)).problem
        for row in self.query(SecretsRow):
            row.note_read(found)


def _patterns(seen: HostSeen) -> tuple[str, ...]:
    """Return the patterns that let a host through on the ports that were asked for."""
    name = f"[{seen.host}]" if ":" in seen.host else seen.host
    usual = (seen.host,) if seen.ports & _DEFAULT_PORTS or not seen.ports else ()
    return usual + tuple(f"{name}:{port}" for port in sorted(seen.ports - _DEFAULT_PORTS))


def _denied(seen: HostSeen) -> Entry:
    names = ", ".join(list(seen.refs.values())[:3])
    more = f" and {len(seen.refs) - 3} more" if len(seen.refs) > 3 else ""
    asked = f", asked for by {seen.asker}" if seen.asker else ""
    return Entry(" ".join(_patterns(seen)), f"{seen.denied} × {names}{more}{asked}")
