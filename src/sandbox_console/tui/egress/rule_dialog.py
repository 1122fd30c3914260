"""Lets the user choose how a host is allowed or denied, for how long and for which sandboxes, with a preview."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from msgspec import Struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import ChangeEgress, DenyEgress, EgressAction
from sandbox_console.model.egress import Effect, EgressRule
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console, Deny
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.egress.egress_text import commands, diff_lines, note_lines
from sandbox_console.tui.text.formatting import shown_name

ONCE_S = 60.0
"""Seconds that "once" means: enough for one more try."""
PERIODS: tuple[tuple[str, float | None], ...] = (("once, 60 s", ONCE_S), ("1 hour", 3600.0), ("always", None))
_SHOWN = 4


class Answer(Struct, frozen=True):
    """What the user agreed to: one action for each sandbox."""

    actions: tuple[tuple[EgressAction, Sandbox], ...]


class EgressAskScreen(ModalScreen[Answer | None]):
    """The focus is on Cancel. ``asked`` are the sandboxes concerned, ``alike`` the others of their templates."""

    DEFAULT_CSS = """
    EgressAskScreen { align: center middle; background: $background 60%; }
    EgressAskScreen > Vertical {
        width: 76;
        max-width: 96%;
        height: auto;
        max-height: 100%;
        background: $surface;
        border: round $warning;
        border-title-color: $warning;
        border-subtitle-color: $text-muted;
        padding: 0 1;
    }
    EgressAskScreen Static { height: auto; }
    EgressAskScreen #changes { height: auto; max-height: 12; margin: 1 0; background: $panel; padding: 0 1; }
    EgressAskScreen Horizontal { height: auto; align-horizontal: right; }
    EgressAskScreen Button { margin-left: 2; min-width: 12; height: 1; border: none; line-pad: 1; }
    EgressAskScreen Button:focus { text-style: bold reverse; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "period(0)", "Once"),
        Binding("2", "period(1)", "1 hour"),
        Binding("3", "period(2)", "Always"),
        Binding("t", "scope", "Sandbox/template"),
        Binding("p", "pattern", "Other pattern"),
        Binding("y", "agree", "Confirm"),
        Binding("escape,n", "dismiss(None)", "Cancel"),
        Binding("c,ctrl+y", "copy", "Copy the commands"),
        Binding("down", "scroll(1)", "Down", show=False),
        Binding("up", "scroll(-1)", "Up", show=False),
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
    ]

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float],
        patterns: Sequence[str],
        sandboxes: Sequence[Sandbox],
        alike: Sequence[Sandbox],
        *,
        allow: bool,
    ) -> None:
        super().__init__()
        self._service = console
        self._clock = clock
        self._patterns = patterns
        self._asked = sandboxes
        self._alike = alike
        self._allow = allow
        self._pattern = 0
        self._period = 1 if allow else 2
        self._template = False
        self._rules: dict[object, tuple[EgressRule, ...] | str] = {}

    def compose(self) -> ComposeResult:
        verb = "Allow" if self._allow else "Deny"
        with Vertical() as box:
            box.border_title = Content(f"{verb} {clean(self._patterns[0], cap=50)}?")
            box.border_subtitle = Content("Ctrl+Y copies the command")
            yield Static(id="choices", markup=False)
            with VerticalScroll(id="changes", can_focus=False):
                yield Static(id="change", markup=False)
            with Horizontal():
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(Content(verb), id="agree", variant="warning", compact=True)

    def on_mount(self) -> None:
        self.query_one("#cancel").focus()
        self._draw()
        self.run_worker(self._load(), exclusive=True, group="load")

    async def _load(self) -> None:
        """Load the rules of all sandboxes that can be chosen, and the policy's verdict."""
        for sandbox in {one.ref: one for one in (*self._asked, *self._alike)}.values():
            try:
                self._rules[sandbox.ref] = (await self._service.egress.state(sandbox.ref)).rules
            except ConsoleError as error:
                self._rules[sandbox.ref] = error.message
        self._draw()
        await self._decide()

    async def _decide(self) -> None:
        decision = None
        actions = self._actions()
        if actions:
            try:
                decision = await self._service.decide(*actions[0])
            except ConsoleError as error:
                decision = Deny(error.message, "request")
        self._draw(decision.reason if isinstance(decision, Deny) else "")

    # --- choices

    @property
    def _targets(self) -> Sequence[Sandbox]:
        return self._alike if self._template else self._asked

    def _actions(self) -> tuple[tuple[EgressAction, Sandbox], ...]:
        pattern, period = self._patterns[self._pattern], PERIODS[self._period][1]
        until = None if period is None else self._clock() + period
        rule = EgressRule(pattern, Effect.ALLOW, until, "live")
        return tuple(
            (ChangeEgress(sandbox.ref, (rule,)) if self._allow else DenyEgress(sandbox.ref, (pattern,), until), sandbox)
            for sandbox in self._targets
        )

    def action_scroll(self, lines: int) -> None:
        """Scroll the changes."""
        self.query_one("#changes").scroll_relative(y=lines, animate=False)

    def action_period(self, at: int) -> None:
        """Choose for how long."""
        self._period = at
        self._redraw()

    def action_scope(self) -> None:
        """Switch between the sandbox alone and all of its template."""
        self._template = not self._template and len(self._alike) > len(self._asked)
        self._redraw()

    def action_pattern(self) -> None:
        """Choose the next pattern for the host."""
        self._pattern = (self._pattern + 1) % len(self._patterns)
        self._redraw()

    def _redraw(self) -> None:
        self._draw()
        self.run_worker(self._decide(), exclusive=True, group="decide")

    # --- drawing

    def _draw(self, denied: str = "") -> None:
        put(self, "#choices", Content.assemble(*self._choices()))
        parts: list[tuple[str, str]] = []
        for action, sandbox in self._actions()[:_SHOWN]:
            parts += [(f"{shown_name(sandbox)}\n", "bold"), *self._change_of(action, sandbox), ("\n", "")]
        if (more := len(self._targets) - _SHOWN) > 0:
            parts.append((f"and {more} more sandboxes the same way\n", "$dim"))
        if denied:
            parts.append((f"✕ {clean(denied, cap=300)}; it is attempted, refused and recorded.", "$text-error"))
        else:
            parts.append(("Afterwards the gateway is asked whether it took effect.", "$dim"))
        put(self, "#change", Content.assemble(*parts))

    def _change_of(self, action: EgressAction, sandbox: Sandbox) -> list[tuple[str, str]]:
        rules = self._rules.get(sandbox.ref)
        if rules is None:
            return [("  …", "$dim")]
        if isinstance(rules, str):
            return [(f"  ✕ {clean(rules, cap=200)}", "$text-error")]
        after = self._service.egress.preview(rules, action)
        notes = self._service.secrets.further(sandbox, self._service.egress.opened(rules, after))
        return [("  ", ""), *diff_lines(rules, after, self._clock()), *note_lines(notes)]

    def _choices(self) -> list[tuple[str, str]]:
        parts = [("Pattern  ", "$dim"), (clean(self._patterns[self._pattern], cap=120), "bold")]
        if len(self._patterns) > 1:
            parts.append(("   p: another", "$dim"))
        parts += [("\nFor      ", "$dim")]
        for at, (label, _) in enumerate(PERIODS):
            parts += _option(f"{at + 1} {label}", chosen=at == self._period)
        parts += [("\nTo       ", "$dim"), *_option(_named(self._asked), chosen=not self._template)]
        if len(self._alike) > len(self._asked):
            parts += _option(f"t template: {len(self._alike)} sandboxes", chosen=self._template)
        return parts

    # --- the answer

    def action_copy(self) -> None:
        """Copy the equivalent commands."""
        lines = [line for action, _ in self._actions() for line in commands(action, self._clock())]
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify("Copied the command" if len(lines) == 1 else f"Copied {len(lines)} commands")

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "agree":
            self.action_agree()
        else:
            self.dismiss(None)

    def action_agree(self) -> None:
        """Confirm the change."""
        self.dismiss(Answer(self._actions()))


def _option(text: str, *, chosen: bool) -> list[tuple[str, str]]:
    return [("(●) " if chosen else "( ) ", "$primary" if chosen else "$dim"), (f"{text}   ", "bold" if chosen else "")]


def _named(sandboxes: Sequence[Sandbox]) -> str:
    return shown_name(sandboxes[0]) if len(sandboxes) == 1 else f"the {len(sandboxes)} sandboxes that asked"
