"""Edits a draft of egress rules, tests it on recorded traffic while you type, and applies it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Select, Static, TextArea

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import ChangeEgress
from sandbox_console.model.egress import Effect
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import Console, Operation
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.egress.draft import Draft
from sandbox_console.tui.egress.draft_status import status_parts, title_parts, why_empty
from sandbox_console.tui.egress.draft_text import COLUMNS, PROBLEM, Part, marks, summary_words
from sandbox_console.tui.egress.egress_text import commands, patterns_of
from sandbox_console.tui.keys.keymap import hint
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.text.formatting import sandbox_host, shown_name
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.table.table_layout import fit_cell

CHECK_S = 0.2
Apply = Callable[[ChangeEgress, Draft], Awaitable[Operation | None]]
"""Requests confirmation to replace the rules with a draft, and starts it. Returns None if the user declines."""


class EgressDraftScreen(Screen[None]):
    """Shows one of the sandboxes at a time. Each keeps its draft while the screen is open."""

    DEFAULT_CSS = """
    EgressDraftScreen { background: $background; }
    EgressDraftScreen > #draft-title { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }
    EgressDraftScreen > Select { height: 1; }
    EgressDraftScreen > #draft { height: 35%; min-height: 5; }
    EgressDraftScreen TextArea { width: 1fr; height: 1fr; padding: 0 0 0 1; scrollbar-size: 1 1; }
    EgressDraftScreen #draft-marks { width: 1fr; height: 1fr; padding: 0 1; background: $surface; text-wrap: nowrap; }
    EgressDraftScreen > #draft-sum { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; }
    EgressDraftScreen > #draft-empty { height: auto; padding: 1 2; color: $text-muted; display: none; }
    EgressDraftScreen > #draft-empty.-on { display: block; }
    EgressDraftScreen > #draft-status { height: auto; max-height: 4; padding: 0 1; background: $surface; }
    EgressDraftScreen Footer { height: 1; }
    """
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["draft"]

    def __init__(
        self, console: Console, apply: Apply, clock: Callable[[], float], sandboxes: Sequence[Sandbox]
    ) -> None:
        super().__init__()
        self._put_in_force = apply
        self._clock = clock
        self._drafts = {sandbox.ref: Draft(console, sandbox, clock) for sandbox in sandboxes}
        self._draft = self._drafts[sandboxes[0].ref]
        self._loaded = False
        self._changes_only = False
        self._timer: Timer | None = None
        self._applying = False

    def compose(self) -> ComposeResult:
        yield Static(id="draft-title", markup=False)
        if len(self._drafts) > 1:
            yield Select(
                [
                    (plain(f"{shown_name(draft.sandbox)}   {sandbox_host(draft.sandbox)}"), ref)
                    for ref, draft in self._drafts.items()
                ],
                value=self._draft.sandbox.ref,
                allow_blank=False,
                compact=True,
                id="draft-of",
            )
        with Horizontal(id="draft"):
            yield TextArea(soft_wrap=False, show_line_numbers=True, compact=True, disabled=True, id="draft-text")
            yield Static(id="draft-marks", markup=False)
        yield Static(id="draft-sum", markup=False)
        yield FleetTable(COLUMNS, id="draft-table")
        yield Static(id="draft-empty", markup=False)
        yield Static(id="draft-status", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        self.watch(self._area, "scroll_y", self._draw_marks, init=False)
        self._load_soon()

    @property
    def _area(self) -> TextArea:
        return self.query_one(TextArea)

    # --- the traffic

    @on(Select.Changed)
    def _other(self, event: Select.Changed) -> None:
        if isinstance(event.value, SandboxRef) and event.value != self._draft.sandbox.ref:
            self._draft = self._drafts[event.value]
            self._load_soon()

    def _load_soon(self) -> None:
        self._loaded = False
        self._area.disabled = True
        self._draw()
        self._say([("Reading the rules and what is on record…", "$dim")])
        self.run_worker(self._load(self._draft), exclusive=True, group="load")

    async def _load(self, draft: Draft) -> None:
        """Load the traffic once, then follow it for as long as the screen is open."""
        try:
            await draft.load()
        except ConsoleError as error:
            again = hint(self, "draft-start-over", "reads again")
            self._say([(f"✕ {clean(error.message, cap=300)}  {again}", PROBLEM)])
            return
        self._loaded = True
        self._area.load_text(draft.text)
        self._area.move_cursor(self._area.document.end)
        self._area.disabled = False
        if self.focused is None:
            self._area.focus()
        self._check_now()
        try:
            await draft.follow(self._check_soon)
        except ConsoleError as error:  # keep what has been read
            self.notify(error.message, title=shown_name(draft.sandbox), severity="warning")

    # --- testing the draft

    @on(TextArea.Changed)
    def _typed(self) -> None:
        if self._loaded:
            self._draft.text = self._area.text
            self._check_soon(again=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        return action not in ("add", "changes") or isinstance(self.focused, FleetTable)

    def _check_soon(self, *, again: bool = False) -> None:
        """Check the draft a moment after the last key. New traffic does not delay the check."""
        if self._timer is not None and again:
            self._timer.stop()
            self._timer = None
        if self._timer is None:
            self._timer = self.set_timer(CHECK_S, self._check_now)

    def _check_now(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.run_worker(self._check(), exclusive=True, group="check")

    async def _check(self) -> None:
        if self._loaded:
            self._draft.text = self._area.text  # includes keys whose message is still on its way
            await self._draft.try_out(changes=self._changes_only)
            self._draw()
            self._tell()

    # --- drawing

    def _tell(self) -> None:
        self._say(status_parts(self, self._draft, self._area.cursor_location[0]))

    def _say(self, parts: Sequence[Part]) -> None:
        put(self, "#draft-status", Content.assemble(*parts))

    def _draw(self) -> None:
        draft = self._draft
        put(self, "#draft-title", Content.assemble(*title_parts(draft, loaded=self._loaded)))
        put(self, "#draft-sum", Content.assemble(*(summary_words(draft.trial) if self._loaded else [])))
        for table in self.query(FleetTable):
            table.set_rows(draft.trial.rows if self._loaded else [])
        put_note(self, "#draft-empty", plain(why_empty(self, draft) if self._loaded else ""))
        self._draw_marks()

    def _draw_marks(self) -> None:
        """Draw the marks beside the visible lines only."""
        top, height = round(self._area.scroll_offset.y), self._area.size.height
        width = self.query_one("#draft-marks").size.width
        draft = self._draft
        shown = marks(draft.trial, draft.rules, draft.refused)[top : top + height] if self._loaded else []
        parts = [part for text, style in shown for part in ((fit_cell(text, width, "left"), style), ("\n", ""))]
        put(self, "#draft-marks", Content.assemble(*parts))

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw_marks)

    # --- keys

    def action_changes(self) -> None:
        """Show only what would change, or all recorded traffic."""
        self._changes_only = not self._changes_only
        self._check_now()

    def action_reset(self) -> None:
        """Reset the draft to the rules in force."""
        self._draft.text = self._draft.begun
        self._load_soon()

    def action_add(self, effect: str) -> None:
        """Add a line for the host under the cursor. It replaces a line with the same pattern."""
        key = self.query_one(FleetTable).cursor_key
        if not self._loaded or not isinstance(key, tuple):
            self.notify("No host is selected.", severity="warning")
            return
        patterns = patterns_of(*key, allow=effect == Effect.ALLOW)
        if not patterns:
            self.notify(f"{clean(key[0], cap=100)} is not a host name: no rule can name it.", severity="warning")
            return
        area = self._area
        kept = [line for line in area.text.split("\n") if line.strip() and patterns[0] not in _words(line)]
        area.replace("\n".join([*kept, f"{effect} {patterns[0]}"]), (0, 0), area.document.end)
        self._check_now()

    def action_commands(self) -> None:
        """Show the draft as commands, and copy them."""
        draft = self._draft
        action = draft.action if self._loaded and not draft.trial.problems else None
        if action is None:
            self.notify("Nothing that could be applied differs from the current rules.", severity="warning")
            return
        lines = commands(action, self._clock())
        self.app.copy_to_clipboard("\n".join(lines))
        self.app.push_screen(
            TextScreen("The draft as commands (copied)", plain("\n".join(f"$ {one}" for one in lines)))
        )

    def action_close(self) -> None:
        """Leave, after a question if a draft has been changed."""
        if self._applying or not any(draft.edited for draft in self._drafts.values()):
            self.dismiss()
            return
        body = Content("The draft is not saved. The current rules stay as they are.")
        self.app.push_screen(ConfirmScreen("Leave the draft?", body, "Leave"), self._left)

    def _left(self, yes: bool | None) -> None:
        if yes:
            self.dismiss()

    # --- applying it

    def action_apply(self) -> None:
        """Put the draft in force, after a question."""
        if self._loaded and not self._applying:
            self._applying = True
            # A worker of the app, as this screen may close while the action runs.
            self.app.run_worker(self._apply(self._draft), group="draft", exclusive=True)

    async def _apply(self, draft: Draft) -> None:
        try:
            await self._check()
            action = await self._ready(draft)
            operation = await self._put_in_force(action, draft) if action is not None else None
            if operation is not None:
                self._say([("Applying…", "$dim")])
                await operation.result()
                draft.text = draft.begun
                if self.is_current:
                    self.dismiss()
        except ConsoleError as error:
            self._say([(f"✕ {clean(error.message, cap=300)}", PROBLEM)])
        finally:
            self._applying = False

    async def _ready(self, draft: Draft) -> ChangeEgress | None:
        """Return the action, or None if a line is invalid, nothing differs, or the rules changed after the test."""
        if problems := draft.trial.problems:
            self._area.move_cursor((min(problems), 0))
            self._area.focus()
            self._tell()
            return None
        if draft.action is not None and await draft.stale():
            self._load_soon()
            self.notify("The rules have changed meanwhile: check the draft again.", severity="warning")
            return None
        return draft.action


def _words(line: str) -> list[str]:
    return line.partition("#")[0].split()
