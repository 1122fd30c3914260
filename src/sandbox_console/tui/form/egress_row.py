"""The form's list of egress patterns: what is wrong with each, where to get more, and a line to test a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Button, Input, Static

from sandbox_console.errors import UsageError
from sandbox_console.model.egress import REASONS, EgressVerdict
from sandbox_console.model.egress_advice import notes_on
from sandbox_console.model.egress_rules import split_target
from sandbox_console.model.spec_fields import SpecField
from sandbox_console.model.text import clean
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.form.form_rows import LineInput
from sandbox_console.tui.form.list_row import ListRow

WouldPass = Callable[[Sequence[str], str, int], EgressVerdict]
"""What the gateway would decide about a host and a port by these patterns."""


class EgressRow(ListRow):
    """The form's row of egress rules. ``would_pass`` decides about the host in the test line, if there is one.

    ``allow_ip`` is the policy's opt-in to addresses.
    """

    DEFAULT_CSS = """
    EgressRow .list-actions { height: 1; }
    EgressRow .list-actions Button { margin: 0 2 0 0; min-width: 8; color: $text-muted; background: $background; }
    EgressRow .list-actions Button:focus { color: $foreground; }
    EgressRow #test-line { height: auto; }
    EgressRow #test-host { width: 28; }
    EgressRow #test-verdict { width: 1fr; height: auto; padding: 0 1; }
    """

    def __init__(
        self, field: SpecField, value: str, hint: str, fixed: str, typed: str | None, would_pass: WouldPass | None, *,
        allow_ip: bool,
    ) -> None:  # fmt: skip
        super().__init__(field, value, hint, fixed, typed, lambda entries: notes_on(entries, allow_ip=allow_ip))
        self._would_pass = would_pass

    def more(self) -> ComposeResult:
        with Horizontal(classes="list-actions"):
            yield Button("Presets F8", id="presets", compact=True, disabled=bool(self._fixed))
            yield Button("From denials F9", id="denials", compact=True, disabled=bool(self._fixed))
        if self._would_pass is None:
            return
        with Horizontal(id="test-line"):
            yield TestInput(placeholder="test a host[:port]", id="test-host", compact=True)
            yield Static(id="test-verdict", markup=False)

    def put(self, text: str) -> None:
        super().put(text)
        self.test()

    @on(Input.Changed, "#test-host")
    @on(Input.Submitted, "#test-host")
    def _asked(self, event: Input.Changed | Input.Submitted) -> None:
        event.stop()  # it is no field, and Enter does not submit the form
        self.test()

    @on(Input.Changed, "EntryInput")
    def _typed(self) -> None:
        self.test()

    def test(self) -> None:
        """Show what the gateway would decide about the host in the test line."""
        for line in self.query("#test-host").results(Input):
            put(self, "#test-verdict", self._verdict(line.value.strip()))

    def _verdict(self, typed: str) -> Content:
        if not typed or self._would_pass is None:
            return Content("")
        try:
            host, port = split_target(typed)
        except UsageError as error:
            return Content.styled(clean(error.message, cap=200), "$text-error")
        verdict = self._would_pass(self.entries, host, port)
        if verdict.allowed:
            return Content.assemble(
                (f"● port {port} passes by ", "$text-success"), (clean(verdict.rule, cap=100), "bold")
            )
        reason = verdict.hint or REASONS.get(verdict.reason, verdict.reason)
        return Content.assemble((f"✕ port {port} is denied: ", "$text-error"), (clean(reason, cap=200), ""))


class TestInput(LineInput):
    """The line with the host to test."""

    __test__ = False  # not a test, whatever its name begins with
