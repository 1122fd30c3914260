"""The form's list of secrets: those of the configuration with a box each, and whether each can be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Button, Static

from sandbox_console.model.spec_fields import SpecField
from sandbox_console.service import SecretInfo
from sandbox_console.tui.form.entry_list import Entry, EntryList
from sandbox_console.tui.form.form_rows import FormRow
from sandbox_console.tui.form.list_row import ListRow

Defined = Callable[[], Sequence[SecretInfo]]
"""The secrets that the configuration defines now."""


class SecretsRow(FormRow):
    """Ticks choose secrets. A chosen name that is not defined is listed too, so that its box can be cleared.

    ``notes`` say more about secrets, by name.
    """

    DEFAULT_CSS = """
    SecretsRow .list-line { height: auto; }
    SecretsRow .list-box { width: 1fr; height: auto; }
    SecretsRow Button { margin: 0; min-width: 8; color: $text-muted; background: $background; }
    SecretsRow Button:focus { color: $foreground; }
    SecretsRow #secret-notes { height: auto; margin-left: 14; color: $text-warning; display: none; }
    SecretsRow #secret-notes.-on { display: block; }
    """

    def __init__(
        self, field: SpecField, value: str, fixed: str, typed: str | None, defined: Defined,
        notes: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(field, value, "", fixed, typed)
        self._chosen = self.begins.split()
        self._defined = defined
        self._notes = notes or {}
        self._read: Mapping[str, str] = {}

    def compose(self) -> ComposeResult:
        with Horizontal(classes="list-line"):
            yield Static(Content(self.field.label), classes="label")
            with Vertical(classes="list-box"):
                yield EntryList(id=f"field-{self.field.name}", disabled=bool(self._fixed))
                yield Button("New secret F7", id="new-secret", compact=True, disabled=bool(self._fixed))
        yield Static(id="secret-notes", markup=False)
        yield Static(classes="problem", markup=False)

    def on_mount(self) -> None:
        self.refresh_list()

    @property
    def text(self) -> str:
        return " ".join(self._chosen)

    def put(self, text: str) -> None:
        self._chosen = list(dict.fromkeys(text.split()))
        self.refresh_list()
        self.post_message(ListRow.Changed(self))

    def choose(self, name: str) -> None:
        """Tick a secret."""
        self.put(f"{self.text} {name}")

    def note_read(self, found: Mapping[str, str]) -> None:
        """Show whether secrets can be read: why not, by name, or an empty text if they can."""
        self._read = {name: why.removeprefix(f"secret {name!r}: ") for name, why in found.items()}
        self.refresh_list()

    def focus_entry(self) -> None:
        """Focus the list, or the button below it while nothing is listed."""
        listed = self.query_one(EntryList)
        (listed if not listed.has_class("-empty") else self.query_one(Button)).focus()

    def refresh_list(self) -> None:
        """Show what is defined now."""
        defined = {secret.name: secret for secret in self._defined()}
        names = list(dict.fromkeys([*defined, *self._chosen]))
        self.query_one(EntryList).show([self._line_of(name, defined.get(name)) for name in names])

    def _line_of(self, name: str, secret: SecretInfo | None) -> Entry:
        ticked = name in self._chosen
        if secret is None:
            return Entry(name, "✕ not defined in the config", "$text-error", ticked)
        noted = f"{note}  · " if (note := self._notes.get(name)) else ""
        words = f"{noted}{secret.source}  → {' '.join(secret.hosts) or 'any host'}"
        match self._read.get(name):
            case None:
                return Entry(name, f"{words}  · read when it is needed", ticked=ticked)
            case "":
                return Entry(name, f"{words}  ● can be read", ticked=ticked)
            case problem:
                return Entry(name, f"{words}  ✕ {problem}", "$text-warning", ticked)

    @on(EntryList.Ticked)
    def _ticked(self, event: EntryList.Ticked) -> None:
        event.stop()
        names = [one.name for one in self._defined()]
        name = [*names, *(one for one in self._chosen if one not in names)][event.index]
        if name in self._chosen:
            self.put(" ".join(one for one in self._chosen if one != name))
        else:
            self.choose(name)
