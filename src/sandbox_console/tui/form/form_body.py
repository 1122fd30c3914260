"""The fields of the form: their values, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs
from textual.app import ComposeResult
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.widgets import Checkbox, Input, Select, Static

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import spec_of
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.form.form_rows import FormRow, TickBox
from sandbox_console.tui.text.form_values import FIELDS, Field, parse, texts_of
from sandbox_console.tui.text.formatting import place

Place = tuple[str, str]
"""A backend and one of its hosts."""


class FormBody(VerticalScroll):
    """A row for each field of a spec.

    ``places`` are where a new sandbox can be made, the usual one first; ``fixed`` says why some fields cannot be
    changed; ``secrets`` are the names of those that are known.
    """

    def __init__(
        self, sandbox: Sandbox | None, fixed: Mapping[str, str], places: Sequence[Place], secrets: Sequence[str]
    ) -> None:
        super().__init__(can_focus=False)
        self._sandbox = sandbox
        self._base = spec_of(sandbox) if sandbox else None
        self._fixed = fixed
        self._places = places
        self._secrets = secrets

    def compose(self) -> ComposeResult:
        texts = texts_of(self._base) if self._base else {}
        for field in FIELDS:
            yield FormRow(field, texts.get(field.name, ""), self._hint(field), self._fixed.get(field.name, ""))
            if field.name == "name":
                yield from self._backend_line()
        yield Static(self._fixed_words(), id="fixed", markup=False)
        yield TickBox(
            "accept limits that cannot be enforced here",
            value=self._base is not None and self._base.limits == "best-effort", id="best-effort", compact=True,
        )  # fmt: skip
        yield Static(id="secret-notes", markup=False)
        if self._sandbox is not None:
            yield Static(id="plan", markup=False)

    def _backend_line(self) -> ComposeResult:
        with Horizontal():
            yield Static("Backend", classes="label")
            if self._sandbox is not None:
                yield Static(Content(place(self._sandbox)))
                return
            places = self._places
            yield Select(
                [
                    (plain(name if host in ("local", "default") else f"{name} on {host}"), (name, host))
                    for name, host in places
                ],
                allow_blank=not places,
                compact=True,
                id="backend",
                prompt="no backend answers",
            )

    def _fixed_words(self) -> Content:
        """Which fields cannot be changed, by reason."""
        labels: dict[str, list[str]] = {}
        for field in FIELDS:
            if why := self._fixed.get(field.name):
                labels.setdefault(why, []).append(field.label)
        return plain("\n".join(f"Not changeable: {', '.join(names)}: {why}." for why, names in labels.items()))

    def _hint(self, field: Field) -> str:
        if field.name != "secrets":
            return field.hint
        names = " ".join(self._secrets)
        return f"known: {names}" if names else "none are defined in the config"

    def on_mount(self) -> None:
        if self._fixed:
            self.query_one("#best-effort").display = False
            self.query_one("#fixed").add_class("-on")

    @property
    def place(self) -> Place | None:
        """Where the sandbox is, or is to be; None where no backend answers."""
        if self._sandbox is not None:
            return self._sandbox.ref.backend, self._sandbox.ref.host
        chosen = [line.value for line in self.query("#backend").results(Select)]  # none while the screen closes
        return chosen[0] if chosen and isinstance(chosen[0], tuple) else None

    @property
    def changed(self) -> bool:
        """Whether something is written or ticked otherwise than when it opened."""
        loose = self._base is not None and self._base.limits == "best-effort"
        return self.query_one("#best-effort", Checkbox).value != loose or any(
            row.changed for row in self.query(FormRow)
        )

    def read(self) -> tuple[SandboxSpec, dict[str, str]]:
        """The spec that is written here, and what cannot be understood, by field."""
        texts = {row.field.name: row.query_one(Input).value for row in self.query(FormRow)}
        loose = self.query_one("#best-effort", Checkbox).value
        spec, problems = parse(texts, self._base)
        return structs.replace(spec, limits="best-effort" if loose else "strict"), problems

    def tell(self, problems: Mapping[str, str]) -> dict[str, str]:
        """Say beside each field what is wrong with it. Returns what belongs to none."""
        rest = dict(problems)
        for row in self.query(FormRow):
            row.tell(rest.pop(row.field.name, ""))
        return rest

    def focus_first(self) -> None:
        """Go to the first field that can be changed."""
        self.query("FormRow Input:enabled").first(Input).focus()

    def focus_problem(self) -> None:
        """Go to the first field with something wrong."""
        wrong = self.query("FormRow.-wrong Input")
        if wrong:
            wrong.first().focus()
