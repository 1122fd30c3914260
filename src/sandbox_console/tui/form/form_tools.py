"""The part of the form that opens dialogs: presets, hosts from denials, and a new secret."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from textual import on
from textual.content import Content
from textual.widgets import Button

from sandbox_console.errors import ConsoleError, Unsupported
from sandbox_console.model.host_action import PullImage
from sandbox_console.model.image import Image
from sandbox_console.model.sandbox import BackendHealth
from sandbox_console.model.spec_fields import Section
from sandbox_console.model.text import clean
from sandbox_console.service import Ask, Feed, HostSeen, Operation, find_paths
from sandbox_console.service.presets import OfferedPreset, load_presets, this_machine
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.actions.consent import consent_to
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.form.egress_row import EgressRow
from sandbox_console.tui.form.entry_list import Entry
from sandbox_console.tui.form.form_section import FormSection
from sandbox_console.tui.form.form_with_draft import FormWithDraft
from sandbox_console.tui.form.host_choice import HostChoice
from sandbox_console.tui.form.image_row import ImageRow
from sandbox_console.tui.form.secret_dialog import SecretScreen
from sandbox_console.tui.form.secrets_row import SecretsRow
from sandbox_console.tui.text.formatting import error_words
from sandbox_console.tui.widgets.layer_progress import Layers

_DEFAULT_PORTS = {80, 443}
_Dialog = Callable[[], Awaitable[HostChoice]]


class FormTools(FormWithDraft):
    """A form with lists of hosts and secrets, and an image. The keys work in every field."""

    _pull: Operation | None = None

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
        told = f"Yours are in {path.with_name('presets.toml')} (docs/egress.md has the format)."
        machine = None
        try:
            spec, _ = self.body.read()
            machine = this_machine(await self._service.ground(), spec.image, spec.workspace or "")
        except ConsoleError as error:
            told += f" Those of registries are left out: {error.message}."
        presets, problem = await asyncio.to_thread(load_presets, path, machine)
        if problem:
            told = f"! Yours are not used: {problem}"
        return HostChoice("Add hosts from presets", told, [(_preset(one), one.hosts) for one in presets])

    async def _denials(self) -> HostChoice:
        silent: list[str] = []

        def answered(healths: Sequence[BackendHealth]) -> None:
            silent.extend(f"{one.backend} does not answer" for one in healths if not one.ok)

        feed = Feed()
        with suppress(ConsoleError):
            async for sandbox, record in self._service.egress.feed(answered=answered):
                feed.add(sandbox.ref, sandbox.name, record)
        own = self._sandbox.ref if self._sandbox else None
        hosts = [one for one in feed.hosts() if one.denied or one.asker]
        hosts.sort(key=lambda one: (own not in one.refs, -one.denied_at))
        note = "Denied so far, newest first" + (", this sandbox's own before the others'." if own else ".")
        note = " ".join([note if hosts else "No sandbox was denied anything so far.", *silent])
        return HostChoice("Add hosts that were denied", note, [(_denied(one), _patterns(one)) for one in hosts])

    async def read_images(self) -> None:
        """Offer the images of the chosen place, or folders if it has none."""
        images: Sequence[Image] | None = ()
        if (host := self.body.host) is not None:
            try:
                images = await self._service.inside.images(*host)
            except Unsupported:
                images = None
            except ConsoleError:  # the list of backends says what is wrong with it
                images = ()
        for row in self.query(ImageRow):
            row.offer(images)

    def action_pin(self) -> None:
        """Replace the image's tag by its digest."""
        if not any(row.pin() for row in self.query(ImageRow)):
            self.notify("The digest is known for images that were pulled.", severity="warning")

    def action_pull(self) -> None:
        """Pull the image of the line, or cancel its pull."""
        if self._pull is not None and not self._pull.done:
            self._pull.cancel()
        elif (host := self.body.host) and (row := next(iter(self.query(ImageRow)), None)) and row.missing:
            self.app.run_worker(self._begin_pull(PullImage(*host, row.text)))

    async def _begin_pull(self, action: PullImage) -> None:
        async def answer(asked: Ask | None) -> bool:
            if asked is None:
                return True
            body = Content(clean(asked.reason, cap=400))
            question = ConfirmScreen(f"Pull {clean(action.image, cap=60)}?", body, "Pull", command=command_line(action))
            agreed: bool = await self.console_app.push_screen_wait(question)
            return agreed

        consent = await consent_to(self._service, action, None, answer)
        if consent is not None and self.is_attached:
            self._pull = self._service.perform(action, consent=consent)
            self.run_worker(self._follow_pull(self._pull), group="pull")

    async def _follow_pull(self, operation: Operation) -> None:
        """Show each layer's state. Leaving the form does not end the pull."""
        row, layers = self.query_one(ImageRow), Layers()
        async for line in operation.events():
            layers.note(line)
            head = Content.styled(f"↓ {layers.counted}, Ctrl+L cancels", "$text-accent")
            row.note_pull(Content.assemble(head, layers.lines))
        row.note_pull(None)
        try:
            await operation.result()
        except asyncio.CancelledError:
            self.notify("The pull is cancelled.")
        except ConsoleError as error:
            self.notify(error_words(error), title="pull", severity="error")
        await self.read_images()

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
            self.run_worker(self.read_secrets(), group="secrets", exclusive=True)

    async def read_secrets(self) -> None:
        """Find out which secrets can be read, of those whose reading asks the user nothing."""
        found: dict[str, str] = {}
        for secret in self._service.secrets.defined:
            if secret.kind in ("env", "file", "value"):
                found[secret.name] = (await self._service.secrets.checked(secret)).problem
        for row in self.query(SecretsRow):
            row.note_read(found)


def _preset(preset: OfferedPreset) -> Entry:
    if preset.problem:
        return Entry(preset.title, f"✕ {preset.problem}; {preset.hint}", "$text-warning")
    return Entry(preset.title, f"{' '.join(preset.hosts)}  ({preset.source or 'no source'})")


def _patterns(host: HostSeen) -> tuple[str, ...]:
    """Return the patterns that let a host through on the ports that were asked for."""
    name = f"[{host.host}]" if ":" in host.host else host.host
    usual = (host.host,) if host.ports & _DEFAULT_PORTS or not host.ports else ()
    return usual + tuple(f"{name}:{port}" for port in sorted(host.ports - _DEFAULT_PORTS))


def _denied(host: HostSeen) -> Entry:
    names = ", ".join(list(host.refs.values())[:3])
    more = f" and {len(host.refs) - 3} more" if len(host.refs) > 3 else ""
    asked = f", asked for by {host.asker}" if host.asker else ""
    return Entry(" ".join(_patterns(host)), f"{host.denied} × {names}{more}{asked}")
