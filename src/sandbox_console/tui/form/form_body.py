"""The fields of the form by section: their values and their problems."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Select, Static

from sandbox_console.errors import NoRoom
from sandbox_console.model import ports
from sandbox_console.model.sandbox import HostKey, Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import FIELDS, Section, SpecField
from sandbox_console.service import Console, spec_of
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.form.egress_row import EgressRow
from sandbox_console.tui.form.form_draft import Draft
from sandbox_console.tui.form.form_rows import FormRow, TickRow
from sandbox_console.tui.form.form_section import FormSection
from sandbox_console.tui.form.image_row import ImageRow
from sandbox_console.tui.form.list_row import ListRow
from sandbox_console.tui.form.secrets_row import SecretsRow
from sandbox_console.tui.text.form_values import parse, texts_of, two_valued, with_entries_of
from sandbox_console.tui.text.formatting import error_words, sandbox_host

_OPEN = (Section.BASICS, Section.RESOURCES, Section.NETWORK, Section.SECRETS)
"""Sections that are initially unfolded, whatever they contain."""


class FormBody(VerticalScroll, inherit_bindings=False):
    """A row for each field of a spec, in collapsible sections. Up and Down go to other fields and do not scroll.

    ``places`` are where a new sandbox can be created, the usual one first. ``fixed`` has the reasons why fields
    cannot be changed. ``draft`` has texts that were typed before.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page_up", "Page up", show=False),
        Binding("pagedown", "page_down", "Page down", show=False),
    ]

    def __init__(
        self, sandbox: Sandbox | None, fixed: Mapping[str, str], places: Sequence[HostKey], service: Console,
        draft: Draft, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__(can_focus=False)
        self._sandbox = sandbox
        self._base = spec_of(sandbox) if sandbox else None
        self._fixed = fixed
        kept = draft.host if draft.host in service.places else None
        self._begin: HostKey | None = kept or next(iter(places), None)
        self._places = [*places, *([kept] if kept and kept not in places else [])]
        self._service = service
        self._clock = clock
        self._draft = draft

    def compose(self) -> ComposeResult:
        texts = self.texts
        for section, fields in itertools.groupby(self.fields, key=lambda field: field.section):
            rows = [self.row(field, texts.get(field.name, "")) for field in fields]
            folded = section not in _OPEN and not any(row.begins for row in rows)
            if rows[0].field.name == "name":
                contents = (rows[0], self._backend_line(), *rows[1:])
                yield FormSection(section, contents, folded=folded, place=self._place)
            else:
                yield FormSection(section, rows, folded=folded)
        yield Static(self._fixed_words(), id="fixed", markup=False)

    @property
    def fields(self) -> Sequence[SpecField]:
        """The fields that are shown, in order."""
        return FIELDS

    @property
    def texts(self) -> Mapping[str, str]:
        """The text of each field without changes."""
        return texts_of(self._base) if self._base else {}

    def row(self, field: SpecField, text: str) -> FormRow:
        """Return the row of a field with its text without changes."""
        typed, fixed = self._kept(field, text), self._fixed.get(field.name, "")
        service = self._service
        match field.name:
            case "image":
                return ImageRow(field, text, fixed, typed, service.config.policy.images, self._clock)
            case "egress":
                ip = service.config.policy.egress_ip
                return EgressRow(field, text, field.hint, fixed, typed, service.egress.would_pass, allow_ip=ip)
            case "ports":
                return ListRow(field, text, field.hint, fixed, typed, ports.notes_on)
            case "secrets":
                return SecretsRow(field, text, fixed, typed, lambda: service.secrets.defined)
        made = TickRow if two_valued(field) else FormRow
        return made(field, text, field.hint, fixed, typed)

    def _kept(self, field: SpecField, text: str) -> str | None:
        """Return the text of the draft. Entries of a table that no draft may have stay as they are."""
        typed, left_out = self._draft.texts.get(field.name), self._draft.left_out.get(field.name, ())
        return typed if typed is None or not left_out else with_entries_of(typed, text, left_out)

    def _backend_line(self) -> Horizontal:
        """Return the line with the place: the only one of a sandbox that exists, or a choice for a new one."""
        place: Widget
        if self._sandbox is not None:
            place = Static(Content(sandbox_host(self._sandbox)))
        else:
            places = self._places
            place = HostSelect(self._choices(places), allow_blank=not places, compact=True,
                               id="backend", prompt="no backend answers", value=self._begin or Select.NULL)  # fmt: skip
        return Horizontal(Static("Backend", classes="label"), place, id="backend-line")

    def _place(self) -> str:
        """Return the place as it is shown in the summary."""
        return _label(self.host) if self.host else "no backend"

    def offer(self, places: Sequence[HostKey]) -> None:
        """Offer these places. The chosen one stays chosen, even while it does not answer."""
        chosen = self.host
        offered = [*places, *([chosen] if chosen and chosen not in places else [])]
        if self._sandbox is not None or set(offered) == set(self._places):
            return
        self._places = offered
        for line in self.query("#backend").results(Select):
            line.set_options(self._choices(offered))
            if offered:
                line.value = chosen or offered[0]

    def _choices(self, places: Sequence[HostKey]) -> list[tuple[Content, HostKey | Spread]]:
        """Return the places to choose, and before them the sets of hosts of which the one with most room is taken."""
        sets: dict[tuple[str, str], list[HostKey]] = {}
        for key in places:
            for group in ("", *self._service.host_options(*key).groups):
                sets.setdefault((key[0], group), []).append(key)
        spreads = [Spread(name, group, tuple(keys)) for (name, group), keys in sets.items() if len(keys) > 1]
        return [
            *((plain(spread.label), spread) for spread in spreads),
            *((plain(_label(one)), one) for one in places),
        ]

    @on(Select.Changed, "#backend")
    def _spread(self, event: Select.Changed) -> None:
        """Put the host with the fewest running sandboxes in the place of a set of hosts."""
        spread = event.value
        if not isinstance(spread, Spread):
            return
        event.stop()
        chosen = spread.keys[0]
        try:
            chosen = self._service.fewest_running(spread.keys)
        except NoRoom as error:
            self.notify(error_words(error), severity="warning", markup=False)
        self.query_one("#backend", HostSelect).value = chosen

    def _fixed_words(self) -> Content:
        """Return which fields cannot be changed, by reason."""
        labels: dict[str, list[str]] = {}
        for field in FIELDS:
            if reason := self._fixed.get(field.name):
                labels.setdefault(reason, []).append(field.label)
        return plain("\n".join(f"Cannot be changed: {', '.join(names)}: {reason}." for reason, names in labels.items()))

    def on_mount(self) -> None:
        if self._fixed:
            self.query_one("#fixed").add_class("-on")

    @property
    def rows(self) -> Iterable[FormRow]:
        """Every row, in order."""
        return self.query(FormRow)

    @property
    def host(self) -> HostKey | None:
        """Where the sandbox is or will be, or None if no backend answers."""
        if self._sandbox is not None:
            return self._sandbox.ref.backend, self._sandbox.ref.host
        chosen = [line.value for line in self.query("#backend").results(Select)]  # empty while the screen closes
        first = chosen[0] if chosen else None
        return first if isinstance(first, tuple) and not isinstance(first, Spread) else None

    @property
    def typed(self) -> dict[str, str]:
        """The texts that differ from the values without changes, by field."""
        return {row.field.name: row.text for row in self.rows if row.changed}

    def reset(self) -> None:
        """Undo every change."""
        for row in self.rows:
            row.reset()

    def read(self) -> tuple[SandboxSpec, dict[str, str]]:
        """Return the entered spec, and what cannot be parsed, by field."""
        return parse({row.field.name: row.text for row in self.rows}, self._base)

    def tell(self, problems: Mapping[str, str]) -> dict[str, str]:
        """Show the problem of each field beside it. Returns the problems that belong to no field."""
        rest = dict(problems)
        for row in self.rows:
            row.tell(rest.pop(row.field.name, ""))
        for section in self.query(FormSection):
            section.refresh_title()
        return rest

    def focus_first(self) -> Widget | None:
        """Focus the first field that can be changed, and return it; None if there is none."""
        first = next(iter(self.query("FormRow Input:enabled").results(Input)), None)
        if first is not None:
            self.screen.set_focus(first)
        return first

    def focus_problem(self, *, after: bool = False) -> None:
        """Focus the first field with a problem, or with ``after`` the next one after the focused field."""
        wrong = [row for row in self.rows if row.has_class("-wrong")]
        if not wrong:
            return
        for section in self.query(FormSection):
            section.open_wrong()
        focused = next((index for index, row in enumerate(wrong) if row.has_focus_within), -1) if after else -1
        self.focus_field(wrong[(focused + 1) % len(wrong)].field.name)

    def focus_field(self, name: str) -> None:
        """Focus a field and scroll to it, also if its section was folded or others above it have just unfolded."""
        row = next(row for row in self.rows if row.field.name == name)
        for section in self.query(FormSection):
            if row in section.rows:
                section.collapsed = False
        row.focus_entry()
        self.call_after_refresh(row.scroll_visible, animate=False)


class Spread(NamedTuple):
    """Hosts of a backend, of which the one with the fewest running sandboxes is taken. ``group`` may be empty."""

    backend: str
    group: str
    keys: tuple[HostKey, ...]

    @property
    def label(self) -> str:
        """The words in the list of choices."""
        of = f"{self.backend}, {self.group}" if self.group else self.backend
        return f"{of}: fewest running of {len(self.keys)}"


class HostSelect(Select[HostKey | Spread], inherit_bindings=False):
    """A choice whose Up and Down go to other fields while it is closed."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "show_overlay", "Show menu", show=False)]


def _label(key: HostKey) -> str:
    name, host = key
    return name if host in ("local", "default") else f"{name} on {host}"
