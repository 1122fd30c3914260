"""What the form of one sandbox and that of several have in common: layout, checks while typing, preview, copies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.css.query import QueryType
from textual.events import DescendantFocus
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Checkbox, Collapsible, Input, Select, Static

from sandbox_console.errors import ConsoleError
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.sandbox import HostKey
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import SpecField
from sandbox_console.model.text import clean
from sandbox_console.tui.actions.cli_command import LEFT_OUT
from sandbox_console.tui.base.browser_files import downloads, refused_by_relay, send_parts
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.base.type_ahead import after_keys
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.form.entry_list import EntryList
from sandbox_console.tui.form.form_body import FormBody
from sandbox_console.tui.form.form_preview import FormPreview, toml_of
from sandbox_console.tui.form.form_rows import FormRow
from sandbox_console.tui.form.form_status import FormStatus, to_fix
from sandbox_console.tui.form.form_tools import FormTools
from sandbox_console.tui.form.list_row import ListRow
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.text.formatting import error_words
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.widgets.log.log_save import save_new

CHECK_S = 0.25
_WIDE = 116
"""The least width of a screen that has room for the preview beside the fields."""
_PLAN_WIDTH, _PLAN_MARGIN = 108, 5
"""The most cells in a row of the plan, and the cells of the screen beside it: padding and a scroll bar."""


class FormBase(FormTools):
    """A form. Its subclasses say what it edits, what is wrong with that, and what it submits."""

    DEFAULT_CSS = """
    FormBase { background: $background; }
    FormBase > #form-title { height: 1; padding: 0 1; background: $panel; text-style: bold; color: $primary; }
    FormBase > #form-main { height: 1fr; }
    FormBody { width: 3fr; margin-top: 1; padding: 0 2; scrollbar-size-vertical: 1; }
    FormBody FormRow { height: auto; max-width: 110; }
    FormBody Horizontal { height: 1; max-width: 110; }
    FormBody .label { width: 14; color: $text-muted; }
    FormBody Input { width: 1fr; height: 1; border: none; padding: 0 1; background: $panel; }
    FormBody Input:focus { background: $primary 25%; }
    FormBody FormRow.-wrong Input, FormBody FormRow.-wrong Checkbox { background: $error 25%; }
    FormBody .problem { height: auto; margin-left: 15; color: $text-error; display: none; }
    FormBody FormRow.-wrong .problem { display: block; }
    FormBody Select { width: 1fr; height: 1; }
    FormBody Checkbox { width: auto; height: 1; border: none; padding: 0; background: $background; }
    FormBody #fixed { height: auto; margin: 1 0 0 13; color: $text-muted; max-width: 97; display: none; }
    FormBody #fixed.-on { display: block; }
    FormBody Input:disabled { background: $background; color: $text-muted; }
    FormBase > #plan-box { height: auto; max-height: 35%; background: $surface; scrollbar-size-vertical: 1; }
    FormBase #plan { height: auto; padding: 0 2; max-width: 112; }
    FormBase.-wide FormPreview, FormBase.-preview FormPreview { display: block; }
    FormBase.-preview FormBody { display: none; }
    FormBase.-wide FormBody { display: block; }
    FormBase > #field-help { height: 1; padding: 0 2; color: $text-muted; background: $surface; }
    FormBase > #form-bar { height: auto; max-width: 120; padding: 0 2; background: $surface; }
    FormBase Button { min-width: 10; height: 1; border: none; margin-left: 2; line-pad: 1; }
    """
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["form"]

    editing = True
    """Whether it changes what exists: the plan is shown, and no field is focused when it opens."""
    _able: Capabilities | None = None
    _timer: Timer | None = None

    # --- what a subclass says

    @property
    def title_words(self) -> str:
        """What is edited."""
        raise NotImplementedError

    def make_body(self) -> FormBody:
        """Return the fields."""
        raise NotImplementedError

    async def check(self, *, all_fields: bool = False) -> None:
        """Read the form, and show what it means and the problems of the fields that were edited, or of all."""
        raise NotImplementedError

    def written(self) -> tuple[str, SandboxSpec | None]:
        """Return the equivalent command, and the spec if there is one."""
        raise NotImplementedError

    async def submit(self) -> None:
        """Carry out what the form says."""
        raise NotImplementedError

    # --- layout

    def compose(self) -> ComposeResult:
        yield Static(Content(self.title_words), id="form-title")
        yield self.draft_note()
        self.touched = set(self.draft.texts)
        self.body = self.make_body()
        with Horizontal(id="form-main"):
            yield self.body
            yield FormPreview()
        if self.editing:
            with VerticalScroll(id="plan-box", can_focus=False):  # visible, however far the fields are scrolled
                yield Static(id="plan", markup=False)
        yield Static(id="field-help", markup=False)
        with Horizontal(id="form-bar"):
            yield FormStatus()
            yield Button("Cancel", id="cancel", compact=True)
            yield Button("Apply" if self.editing else "Create", id="submit", variant="primary", compact=True)
        yield KeyBar()

    def places(self) -> list[HostKey]:
        """Return the places of the backends that answer, the configured default first."""
        healthy = [key for key, health in self.console_app.fleet.health.items() if health.ok]
        return sorted(healthy, key=lambda key: key[0] != self._service.config.backend)

    def on_mount(self) -> None:
        """Focus the first field for a new sandbox. For an existing one focus none, as early keys would change it."""
        self.begin_keeping()
        self.watch(self.body, "virtual_size", self._fit)
        self.run_worker(self.read_secrets(), group="secrets")
        self.run_worker(self.read_images(), group="images")
        self.watch(self.console_app, "fleet", lambda: self.body.offer(self.places()), init=False)
        if not self.editing:
            self.body.focus_first()
        if self.editing or self.draft.texts:
            self.check_soon()

    def focus_next(self, selector: str | type[QueryType] = "*") -> Widget | None:
        """Go to the next field; from nowhere to the first that can be changed, and not to the title before it."""
        first = self.body.focus_first() if self.focused is None and selector == "*" else None
        found = first or super().focus_next(selector)
        if isinstance(found, EntryList):
            found.enter()
        return found

    def focus_previous(self, selector: str | type[QueryType] = "*") -> Widget | None:
        """Go to the field before. From the first one do not go round to the button that submits the form."""
        if selector == "*" and self.focused in (None, *self.focus_chain[:1]):
            return self.focused or self.body.focus_first()
        found = super().focus_previous(selector)
        if isinstance(found, EntryList):
            found.enter(last=True)
        return found

    def on_resize(self) -> None:
        """Wrap the plan's lines to the width, and show the preview beside the fields if there is room."""
        self.set_class(self.size.width >= _WIDE, "-wide")
        self.call_after_refresh(self._fit)
        if self.editing:
            self.check_soon()

    @on(Collapsible.Toggled)
    def _folded(self) -> None:
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        """Give the fields the rows that they need, if there is room, so that the buttons stay near them."""
        main = self.query_one("#form-main")
        others = (widget for widget in self.children if widget is not main and widget.display)
        room = self.size.height - sum(widget.outer_size.height for widget in others)
        wanted = max((one.virtual_region.bottom for one in self.body.children if one.display), default=0)
        if not self.has_class("-preview"):
            main.styles.height = wanted + 1 if 0 < wanted < room - 1 else "1fr"

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Show what the focused field means, and whether the backend supports it."""
        row = next((node for node in event.widget.ancestors if isinstance(node, FormRow)), None)
        put(self, "#field-help", self._help(row.field) if row else Content(""))

    def _help(self, field: SpecField) -> Content:
        words: list[tuple[str, str]] = [(field.help[:1].upper() + field.help[1:], "$dim")]
        if field.needs and self._able is not None and not self._able.has(need := Capability(field.needs)):
            words.append((f"  ✕ not here: {clean(self._able.reason(need), cap=200)}", "$text-warning"))
        return Content.assemble(*words)

    # --- checking while the user types

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self.touched.add((event.input.id or "").removeprefix("field-"))
        self.keep_draft()
        self.check_soon()

    @on(Checkbox.Changed)
    def _ticked(self, event: Checkbox.Changed) -> None:
        self.touched.add((event.checkbox.id or "").removeprefix("field-"))
        self.keep_draft()
        self.check_soon()

    @on(ListRow.Changed)
    def _listed(self, event: ListRow.Changed) -> None:
        self.touched.add(event.row.field.name)
        self.keep_draft()
        self.check_soon()

    @on(Select.Changed, "ChoiceSelect")
    def _choice_made(self, event: Select.Changed) -> None:
        self.touched.add((event.select.id or "").removeprefix("field-"))
        self.keep_draft()
        self.check_soon()

    @on(Select.Changed, "#backend")
    def _chosen_place(self) -> None:
        self.keep_draft()
        self.run_worker(self.read_images(), group="images", exclusive=True)
        self.check_soon()

    def check_soon(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(CHECK_S, lambda: self.run_worker(self.check(), exclusive=True, group="check"))

    def show_problems(self, problems: Mapping[str, str], *, all_fields: bool) -> None:
        """Show the problems of the fields that were edited, or of all.

        What was shown once stays until it is mended: a check of keys typed before Ctrl+S may end after it.
        """
        if all_fields:
            self.touched |= set(problems)
        self.tell({key: text for key, text in problems.items() if key in self.touched})

    def show_preview(self) -> None:
        """Show the equivalent command and the spec."""
        for preview in self.query(FormPreview):  # none while the screen closes
            preview.show(*self.written())

    @property
    def plan_width(self) -> int:
        """Cells in a row of the plan."""
        return min(_PLAN_WIDTH, self.size.width - _PLAN_MARGIN)

    def tell(self, problems: Mapping[str, str]) -> None:
        """Show problems beside their fields, and those that belong to no field below."""
        rest = self.body.tell(problems)
        put(self, "#status", to_fix(problems, [f"{key}: {text}" for key, text in rest.items()]))

    @on(FormStatus.Chosen)
    def _go_to(self, event: FormStatus.Chosen) -> None:
        self.body.focus_field(event.field)

    # --- preview and copies

    def action_preview(self) -> None:
        """Switch to the preview if it is not beside the fields, or back to the fields."""
        self.toggle_class("-preview")
        self.query_one("#form-main").styles.height = "1fr"
        self.call_after_refresh(self._fit)

    def action_copy(self) -> None:
        """Copy the equivalent command."""
        command = self.written()[0]
        self.app.copy_to_clipboard(command)
        left = f". {LEFT_OUT} stands for values that sound secret" if f"={LEFT_OUT}" in command else ""
        self.notify(f"Copied the command{left}")

    def action_save(self) -> None:
        """Save the spec as TOML, in a file that the user names."""
        if self.app.screen is self:
            self.run_worker(self._save(), group="save", exclusive=True)

    async def _save(self) -> None:
        _, spec = self.written()
        if spec is None:
            self.notify("Several sandboxes have no common spec. Ctrl+Y copies the command.", severity="warning")
            return
        safe = "".join(char if char.isascii() and char.isalnum() else "-" for char in spec.name)[:40] or "sandbox"
        if refused_by_relay(self.app):
            return
        if downloads(self.app):
            await send_parts(self.app, f"{safe}.toml", lambda: [toml_of(spec).encode()])
            self.notify("Downloaded the spec")
            return
        question = AskScreen("Save the spec to", "a file that does not exist yet", str(Path.cwd() / f"{safe}.toml"))
        if not (typed := await self.app.push_screen_wait(question)):
            return
        path = Path(typed).expanduser().absolute()
        try:
            await save_new(path, lambda: [toml_of(spec).encode()], await self._service.ground())
        except OSError as error:
            self.notify(f"{path} cannot be written: {error.strerror}", title="save", severity="error")
        except ConsoleError as error:
            self.notify(error_words(error), title="save", severity="error")
        else:
            self.notify(f"Saved to {path}")

    def action_next_problem(self) -> None:
        """Go to the next field with a problem."""
        self.body.focus_problem(after=True)

    @property
    def is_open(self) -> bool:
        """Whether the form can still show messages."""
        return self.is_attached

    def done(self) -> None:
        """Close the form, unless another screen covers it. What was typed is applied, so no draft is left."""
        self.drop_draft()
        if self.is_current:
            self.dismiss()

    def show_status(self, text: str, *, error: bool = False) -> None:
        """Show progress below the fields."""
        put(self, "#status", plain(text, "$text-error" if error else "$dim"))

    # --- submitting

    @on(Button.Pressed, "#submit")
    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_submit()

    @on(Button.Pressed, "#cancel")
    def _cancelled(self) -> None:
        self.action_close()

    def action_submit(self) -> None:
        """Create the sandbox, or apply the changes."""
        if not self.busy and self.app.screen is self:  # otherwise a question of it is open
            after_keys(self, self._begin)

    def _begin(self) -> None:
        self._stop_checking()
        # A worker of the app, as this screen may close while the action runs.
        self.app.run_worker(self.submit(), group="submit", exclusive=True)

    def _stop_checking(self) -> None:
        """Cancel checks: a late one would overwrite the action's messages."""
        if self._timer is not None:
            self._timer.stop()
        self.workers.cancel_group(self, "check")
