"""The dialog that asks which shell is opened, as whom, where and with what environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from sandbox_console.errors import ConsoleError, UsageError
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.shells import NO_SHELL
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.shell.shell_choice import ShellChoice, absolute, env_line, parse_env
from sandbox_console.tui.text.formatting import error_words, shown_name
from sandbox_console.tui.widgets.tick_box import TickBox

_FIELDS = (
    ("shell", "Shell", "the best one"), ("user", "User", "the sandbox's"),
    ("workdir", "Folder", "the sandbox's"), ("env", "Environment", "NAME=VALUE NAME='two words'"),
)  # fmt: skip

_OTHERS = "Bring one, name a program of it as the shell, or attach to its main process."
_BUSYBOX = "Bring this machine's busybox, which stays in its memory"


class ChoiceScreen(ModalScreen[ShellChoice]):
    """Returns the choice, or None. ``find`` asks the sandbox which shells it has. Raises ConsoleError."""

    DEFAULT_CSS = """
    ChoiceScreen { align: center middle; background: $background 60%; }
    ChoiceScreen > Vertical {
        width: 72; max-width: 94%; height: auto; max-height: 100%; background: $surface; border: round $primary;
        border-title-color: $primary; border-subtitle-color: $text-muted; padding: 0 1;
    }
    ChoiceScreen OptionList { height: auto; max-height: 6; border: none; background: $panel; margin-bottom: 1; }
    ChoiceScreen OptionList:focus { border: none; }
    ChoiceScreen Static { height: auto; color: $text-muted; }
    ChoiceScreen Input { border: none; height: 1; padding: 0 1; background: $panel; }
    ChoiceScreen TickBox { margin-top: 1; background: $surface; }
    ChoiceScreen .note { display: none; color: $text-error; margin-top: 1; }
    ChoiceScreen .note.-on { display: block; }
    """
    AUTO_FOCUS = "OptionList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Cancel"),
        Binding("ctrl+s", "open_shell", "Open", priority=True),
    ]

    def __init__(self, sandbox: Sandbox, choice: ShellChoice, find: Callable[[], Awaitable[Sequence[str]]]) -> None:
        super().__init__()
        self._sandbox = sandbox
        self._choice = choice
        self._find = find
        self._busybox = False

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = Content(f"Open a shell in {shown_name(self._sandbox)}")
            box.border_subtitle = Content("Enter opens it, Tab goes on, Esc leaves")
            yield Static("Asking which shells it has…", id="found", markup=False)
            yield OptionList(markup=False)
            for name, title, empty in _FIELDS:
                yield Static(title, markup=False)
                yield Input(self._value(name), placeholder=empty, id=name, compact=True)
            yield TickBox("Keep it when the console ends", self._choice.keep, id="keep", compact=True)
            yield Static(id="wrong", classes="note", markup=False)

    def _value(self, name: str) -> str:
        return env_line(self._choice.env) if name == "env" else str(getattr(self._choice, name))

    def on_mount(self) -> None:
        self.query_one(OptionList).display = False
        self.query_one("#shell", Input).focus()
        self.run_worker(self._ask())

    async def _ask(self) -> None:
        try:
            found = await self._find()
        except ConsoleError as error:
            put(self, "#found", plain(f"Which shells it has cannot be asked: {error_words(error)}"))
            return
        for options in self.query(OptionList):  # none: the question was closed meanwhile
            self._offer(options, found)

    def _offer(self, options: OptionList, found: Sequence[str]) -> None:
        options.add_options(Option(plain(path), id=path) for path in found)
        options.display = True
        if not found:
            put(self, "#found", Content.assemble((f"{NO_SHELL}. ", "$text-warning"), _OTHERS))
            options.add_option(Option(plain(_BUSYBOX), id=""))
            options.highlighted = 0
            options.focus()
            return
        put(self, "#found", Content("Shells that it has:"))
        options.highlighted = found.index(self._choice.shell) if self._choice.shell in found else 0
        if not any(one.value for one in self.query(Input)):
            options.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.query_one("#shell", Input).value = event.option.id or ""
        self._busybox = not event.option.id
        self.action_open_shell()

    def on_input_submitted(self) -> None:
        self.action_open_shell()

    def action_open_shell(self) -> None:
        """Return what was typed, if it can be understood."""
        values = {name: self.query_one(f"#{name}", Input).value.strip() for name, _, _ in _FIELDS}
        try:
            env = parse_env(values.pop("env"))
            absolute(values["workdir"])
        except UsageError as error:
            put_note(self, "#wrong", plain(error_words(error)))
            return
        self.dismiss(ShellChoice(env=env, keep=self.query_one(TickBox).value, busybox=self._busybox, **values))

    def action_leave(self) -> None:
        """Open nothing."""
        self.dismiss(None)
