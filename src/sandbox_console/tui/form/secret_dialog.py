"""A dialog that defines a secret in the configuration: its name, where its value comes from, and its hosts."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import tomli_w
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Button, Input, RadioButton, RadioSet, Static

from sandbox_console.errors import ConsoleError, InvalidSpec
from sandbox_console.model.text import clean
from sandbox_console.service import SecretSource
from sandbox_console.service.effects.secret_definition import SecretDefinition, SecretDefinitions
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.base.type_ahead import after_keys
from sandbox_console.tui.form.form_rows import LineInput
from sandbox_console.tui.form.list_row import split
from sandbox_console.tui.text.formatting import error_words

CHECK_S = 0.3
_KINDS = ("env", "file", "keyring", "cmd")
_LABELS = ("variable", "file", "keyring", "program")
_HINTS = (
    "empty: the variable of the same name",
    "/path, ~/path or $CREDENTIALS_DIRECTORY/name",
    "SERVICE/USER; empty: sandbox-console/ and the name",
    "pass show NAME",
)
_SILENT = ("env", "file")
"""Sources whose reading asks the user nothing."""
_INJECTS: tuple[Literal["auto", "env", "file", "placeholder"], ...] = ("auto", "env", "file", "placeholder")
_PATHS = ("automatically", "variable", "file", "placeholder")


class SecretScreen(ModalScreen[str]):
    """Returns the name of the secret that was defined, or an empty text."""

    DEFAULT_CSS = """
    SecretScreen { align: center middle; background: $background 60%; }
    SecretScreen > Vertical {
        width: 84; max-width: 96%; height: auto; max-height: 100%; background: $surface; border: round $primary;
        padding: 0 1; border-title-color: $primary; border-subtitle-color: $text-muted; overflow-y: auto;
    }
    SecretScreen .line { height: 1; }
    SecretScreen .label { width: 10; color: $text-muted; }
    SecretScreen Input { width: 1fr; height: 1; border: none; padding: 0 1; background: $panel; }
    SecretScreen Input:focus { background: $primary 25%; }
    SecretScreen Input.-wrong { background: $error 25%; }
    SecretScreen #value-line { display: none; }
    SecretScreen.-keyring #value-line { display: block; }
    SecretScreen Static.told { height: auto; margin-top: 1; }
    SecretScreen #secret-problems { color: $text-error; display: none; }
    SecretScreen #secret-problems.-on { display: block; }
    SecretScreen #secret-toml { color: $text-muted; }
    SecretScreen #buttons { height: 1; align-horizontal: right; margin-top: 1; }
    SecretScreen Button { margin-left: 2; min-width: 10; height: 1; border: none; line-pad: 1; }
    """
    AUTO_FOCUS = "#secret-name"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss('')", "Cancel"),
        Binding("ctrl+s", "define", "Define", priority=True),
        Binding("ctrl+t", "try_it", "Read it now", priority=True),
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, definitions: SecretDefinitions) -> None:
        super().__init__()
        self._definitions = definitions
        self._timer: Timer | None = None
        self._busy = False

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content("New secret")
            box.border_subtitle = Content("Enter defines it, Ctrl+T reads it now, Esc leaves")
            yield _line(
                "Name",
                LineInput(
                    placeholder="GITHUB_TOKEN: a variable, or the name of a file", id="secret-name", compact=True
                ),
            )
            yield _line("From", Choices(_LABELS, id="secret-kind"))
            yield _line("", _input("from", _HINTS[0]))
            value = _input("value", "stored in the keyring; leave it empty if it is there", masked=True)
            yield _line("Value", value, id="value-line")
            yield _line("Hosts", _input("hosts", "what it is for, such as api.github.com; empty: any host"))
            yield _line("Given as", Choices(_PATHS, id="secret-inject"))
            yield Static(id="secret-problems", classes="told", markup=False)
            yield Static(id="secret-status", classes="told", markup=False)
            yield Static(id="secret-toml", classes="told", markup=False)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Read it now", id="try", compact=True)
                yield Button("Define", id="define", variant="primary", compact=True)

    def on_mount(self) -> None:
        self._changed()

    def _definition(self) -> SecretDefinition:
        kind = self.query_one("#secret-kind", Choices).at
        name, reference, value, hosts = (
            self.query_one(f"#secret-{one}", Input).value for one in ("name", "from", "value", "hosts")
        )
        name, reference = name.strip(), reference.strip() or _usual(kind, name.strip())
        inject = _INJECTS[self.query_one("#secret-inject", Choices).at]
        source = SecretSource(source=f"{_KINDS[kind]}:{reference}", inject=inject, hosts=tuple(split(hosts)))
        return SecretDefinition(name, source, value if _KINDS[kind] == "keyring" else "")

    # --- while it is typed

    @on(RadioSet.Changed, "#secret-kind")
    def _other_kind(self, event: RadioSet.Changed) -> None:
        self.set_class(_KINDS[event.index] == "keyring", "-keyring")
        self.query_one("#secret-from", Input).placeholder = _HINTS[event.index]

    @on(Input.Changed)
    @on(RadioSet.Changed)
    def _changed(self) -> None:
        definition = self._definition()
        typed = definition.name or self.query_one("#secret-from", Input).value
        self._tell(self._definitions.problems(definition) if typed else {})
        path = self._definitions.path
        shown = tomli_w.dumps({"secrets": {definition.name or "NAME": definition.table}}) if path else ""
        head = f"Written to {path}:\n" if path else "This console has no configuration file to change."
        put(self, "#secret-toml", Content("\n".join(clean(one, cap=300) for one in f"{head}{shown}".splitlines())))
        self._show_status("")
        if self._timer is not None:
            self._timer.stop()
        if definition.name and definition.source.kind in _SILENT:
            self._timer = self.set_timer(CHECK_S, self._try_if_silent)

    def _tell(self, problems: Any) -> None:
        for field in ("name", "from", "value", "hosts"):
            self.query_one(f"#secret-{field}").set_class(field in problems, "-wrong")
        self._refuse("\n".join(f"✕ {field}: {clean(text, cap=300)}" for field, text in problems.items()))

    def _refuse(self, problem: str) -> None:
        """Show why it cannot be defined. It stays until a field changes, whatever is read meanwhile."""
        put_note(self, "#secret-problems", Content(problem))

    def _show_status(self, text: str, style: str = "$dim") -> None:
        put(self, "#secret-status", Content.styled(clean(text, cap=600), style))

    def _try_if_silent(self) -> None:
        """Read the value, unless another source was chosen after the timer was started."""
        if self._definition().source.kind in _SILENT:
            self.action_try_it()

    def action_try_it(self) -> None:
        """Read the value, to see whether that is possible. It is not shown."""
        self.run_worker(self._try(), group="try", exclusive=True)

    async def _try(self) -> None:
        definition = self._definition()
        if self._definitions.problems(definition).keys() - {"name"} or definition.value:
            return
        self._show_status("Reading…")
        problem = await self._definitions.checked(definition)
        self._show_status(
            f"! {problem}" if problem else "● It can be read.", "$text-warning" if problem else "$text-success"
        )

    # --- the end

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        match event.button.id:
            case "define":
                self.action_define()
            case "try":
                self.action_try_it()
            case _:
                self.dismiss("")

    @on(Input.Submitted)
    def action_define(self) -> None:
        """Write the definition to the configuration."""
        if not self._busy:
            after_keys(self, lambda: self.app.run_worker(self._define(), group="define"))

    async def _define(self) -> None:
        if self._busy or not self.is_current:
            return
        if self._timer is not None:
            self._timer.stop()
        self.workers.cancel_group(self, "try")
        self._busy, definition = True, self._definition()
        self._show_status("Writing…")
        try:
            await self._definitions.define(definition, agreed=True)
        except InvalidSpec as error:
            self._tell(error.problems)
            self._show_status("")
        except ConsoleError as error:
            self._refuse(f"✕ {clean(error_words(error), cap=600)}")
            self._show_status("")
        else:
            self.dismiss(definition.name)
        finally:
            self._busy = False


class Choices(RadioSet, inherit_bindings=False):
    """Words in a row, of which one is chosen by Left and Right or a click."""

    DEFAULT_CSS = """
    Choices { layout: horizontal; width: 1fr; background: $surface; border: none !important; padding: 0; }
    Choices > RadioButton { width: auto; margin-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "choose(-1)", show=False),
        Binding("right,space", "choose(1)", show=False),
    ]

    def __init__(self, labels: tuple[str, ...], *, id: str) -> None:
        super().__init__(*(Choice(one, value=at == 0) for at, one in enumerate(labels)), id=id, compact=True)

    @property
    def at(self) -> int:
        """The index of the chosen word."""
        return max(0, self.pressed_index)

    def action_choose(self, step: int) -> None:
        """Choose the next or the previous one."""
        buttons = list(self.query(RadioButton))
        buttons[(self.at + step) % len(buttons)].value = True


class Choice(RadioButton):
    """A word that shows with a sign, not with colour alone, whether it is chosen."""

    @property
    def BUTTON_INNER(self) -> str:  # type: ignore[override]  # noqa: N802 - Textual's name
        return "●" if self.value else " "


def _input(name: str, placeholder: str, *, masked: bool = False) -> LineInput:
    return LineInput(placeholder=placeholder, id=f"secret-{name}", compact=True, password=masked)


def _line(label: str, *widgets: Any, id: str | None = None) -> Horizontal:
    return Horizontal(Static(plain(label), classes="label"), *widgets, classes="line", id=id)


def _usual(kind: int, name: str) -> str:
    """Return the reference for a line that is empty."""
    return name if _KINDS[kind] == "env" else f"sandbox-console/{name}" if _KINDS[kind] == "keyring" and name else ""
