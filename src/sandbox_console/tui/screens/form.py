"""The form that makes a sandbox, or changes one: errors beside their fields, the plan before it is carried out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import structs
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Button, Checkbox, Input, Select, Static

from sandbox_console.errors import ConsoleError, InvalidSpec
from sandbox_console.model.action import Create, Update
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.text import clean
from sandbox_console.service import Ask, Consent, Console, How, Operation, differing, spec_of
from sandbox_console.tui.command_lines import command_line
from sandbox_console.tui.flows import ANEW, LIVE, Flows
from sandbox_console.tui.formdata import FIELDS, Field, parse, texts_of
from sandbox_console.tui.panes.plan import plan_words
from sandbox_console.tui.safety import plain
from sandbox_console.tui.scopes import scoped
from sandbox_console.tui.screens.confirm import ConfirmScreen
from sandbox_console.tui.screens.fields import FormRow, TickBox
from sandbox_console.tui.showing import put, put_note
from sandbox_console.tui.widgets.key_bar import KeyBar
from sandbox_console.tui.words import place, shown_name
from sandbox_console.tui.work import Work

CHECK_S = 0.25
Place = tuple[str, str]


class FormScreen(Screen[None]):
    """Closing it cancels nothing that it started. ``fixed`` says why some fields cannot be changed."""

    DEFAULT_CSS = """
    FormScreen { background: $background; }
    FormScreen > #form-title { height: 1; padding: 0 1; background: $panel; text-style: bold; color: $primary; }
    FormScreen > VerticalScroll { height: 1fr; padding: 1 2 0 2; scrollbar-size-vertical: 1; }
    FormScreen FormRow { height: auto; max-width: 110; }
    FormScreen Horizontal { height: 1; max-width: 110; }
    FormScreen .label { width: 12; color: $text-muted; }
    FormScreen Input { width: 1fr; height: 1; border: none; padding: 0 1; background: $panel; }
    FormScreen Input:focus { background: $primary 25%; }
    FormScreen FormRow.-wrong Input { background: $error 25%; }
    FormScreen .problem { height: auto; margin-left: 13; color: $text-error; display: none; }
    FormScreen FormRow.-wrong .problem { display: block; }
    FormScreen Select { width: 1fr; height: 1; }
    FormScreen Checkbox {
        width: auto;
        height: 1;
        border: none;
        padding: 0;
        background: $background;
        margin-left: 12;
    }
    TickBox > .toggle--button, TickBox.-on > .toggle--button { color: $foreground; background: $panel; }
    FormScreen #secret-notes { height: auto; margin: 1 0 0 13; color: $text-warning; max-width: 97; display: none; }
    FormScreen #secret-notes.-on { display: block; }
    FormScreen #fixed { height: auto; margin: 1 0 0 13; color: $text-muted; max-width: 97; display: none; }
    FormScreen #fixed.-on { display: block; }
    FormScreen Input:disabled { background: $background; color: $text-muted; }
    FormScreen #plan { height: auto; margin-top: 1; padding: 0 1; background: $surface; max-width: 110; }
    FormScreen > #form-bar { height: auto; max-width: 100%; padding: 0 2; background: $surface; }
    FormScreen #status { width: 1fr; height: auto; max-height: 3; }
    FormScreen Button { min-width: 10; height: 1; border: none; margin-left: 2; line-pad: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = scoped(
        "form",
        [
            Binding("ctrl+s", "submit", "Create/Apply", priority=True),
            Binding("escape", "close", "Close"),
            Binding("down", "app.focus_next", "Next field"),
            Binding("up", "app.focus_previous", "Field before", show=False),
        ],
    )

    def __init__(self, console: Console, work: Work, flows: Flows, sandbox: Sandbox | None = None,
                 fixed: Mapping[str, str] | None = None) -> None:  # fmt: skip
        super().__init__()
        self._service = console
        self._work = work
        self._flows = flows
        self._sandbox = sandbox
        self._base = spec_of(sandbox) if sandbox else None
        self._fixed = fixed or {}
        self._touched: set[str] = set()
        self._timer: Timer | None = None
        self._operation: Operation | None = None

    # --- what is on it

    def compose(self) -> ComposeResult:
        title = f"Edit {shown_name(self._sandbox)}" if self._sandbox else "New sandbox"
        texts = texts_of(self._base) if self._base else {}
        yield Static(Content(title), id="form-title")
        with VerticalScroll(can_focus=False):
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
        with Horizontal(id="form-bar"):
            yield Static(id="status", markup=False)
            yield Button("Cancel", id="cancel", compact=True)
            yield Button("Apply" if self._sandbox else "Create", id="submit", variant="primary", compact=True)
        yield KeyBar()

    def _backend_line(self) -> ComposeResult:
        with Horizontal():
            yield Static("Backend", classes="label")
            if self._sandbox is not None:
                yield Static(Content(place(self._sandbox)))
                return
            places = self._places()
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

    def _places(self) -> list[Place]:
        """The backends that answer, the configured default first."""
        healthy = [key for key, health in self.app.fleet.health.items() if health.ok]  # type: ignore[attr-defined]
        return sorted(healthy, key=lambda key: key[0] != self._service.config.backend)

    def _hint(self, field: Field) -> str:
        if field.name != "secrets":
            return field.hint
        names = " ".join(self._service.secrets.names)
        return f"known: {names}" if names else "none are defined in the config"

    def on_mount(self) -> None:
        self.query("FormRow Input:enabled").first(Input).focus()
        if self._fixed:
            self.query_one("#best-effort").display = False
            self.query_one("#fixed").add_class("-on")
        if self._sandbox is not None:
            self._check_soon()

    # --- checking as one types

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._touched.add((event.input.id or "").removeprefix("field-"))
        self._check_soon()

    @on(Select.Changed)
    @on(Checkbox.Changed)
    def _chosen(self) -> None:
        self._check_soon()

    def _check_soon(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(CHECK_S, lambda: self.run_worker(self._check(), exclusive=True, group="check"))

    def _read(self) -> tuple[SandboxSpec, dict[str, str]]:
        texts = {row.field.name: row.query_one(Input).value for row in self.query(FormRow)}
        loose = self.query_one("#best-effort", Checkbox).value
        spec, problems = parse(texts, self._base)
        return _with_limits(spec, loose=loose), problems

    def _place(self) -> Place | None:
        if self._sandbox is not None:
            return self._sandbox.ref.backend, self._sandbox.ref.host
        chosen = self.query_one("#backend", Select).value
        return chosen if isinstance(chosen, tuple) else None

    async def _check(self, *, all_fields: bool = False) -> tuple[SandboxSpec, dict[str, str]]:
        """Read the form and show what is wrong with what was touched."""
        spec, problems = self._read()
        if (where := self._place()) is not None:
            try:
                found = await self._service.problems(spec, *where)
                if self._sandbox is not None and self._sandbox.spec is None:  # what another tool chose is not judged
                    found = differing(self._sandbox, spec, found)
                problems = {**found, **problems}
            except ConsoleError as error:
                problems = {**problems, "backend": error.message}
        problems |= await self._show_plan(spec)
        self._show_notes(spec)
        self._tell(problems if all_fields else {key: text for key, text in problems.items() if key in self._touched})
        return spec, problems

    def _tell(self, problems: Mapping[str, str]) -> None:
        rest = dict(problems)
        for row in self.query(FormRow):
            row.tell(rest.pop(row.field.name, ""))
        self._say("; ".join(f"{key}: {text}" for key, text in rest.items()), error=True)

    async def _show_plan(self, spec: SandboxSpec) -> dict[str, str]:
        """Say how each change would be made; gives those that cannot be."""
        if self._sandbox is None:
            return {}
        try:
            plan = await self._service.plan(self._sandbox, spec)
        except ConsoleError as error:
            return {"backend": error.message}
        put(self, "#plan", plan_words(plan))
        return {
            change.field: change.reason or "unsupported" for change in plan.changes if change.how is How.UNSUPPORTED
        }

    def _show_notes(self, spec: SandboxSpec) -> None:
        """Say which secrets nothing keeps to their hosts; of an edit the plan says it."""
        where = self._place()
        notes = self._service.secrets.notes(spec, *where) if self._sandbox is None and where else ()
        put_note(self, "#secret-notes", plain("\n".join(f"! {text}" for text in notes)))

    def _say(self, text: str, *, error: bool = False) -> None:
        put(self, "#status", plain(text, "$text-error" if error else "$dim"))

    # --- doing it

    @on(Button.Pressed, "#submit")
    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_submit()

    @on(Button.Pressed, "#cancel")
    def _cancelled(self) -> None:
        self.action_close()

    def action_close(self) -> None:
        """Leave the form; an action that it started goes on."""
        self.dismiss()

    def action_submit(self) -> None:
        """Create or apply."""
        if self._operation is None or self._operation.done:
            self._stop_checking()
            # The app's worker: this screen may close while the action goes on.
            self.app.run_worker(self._submit(), group="submit", exclusive=True)

    def _stop_checking(self) -> None:
        """A check that runs late would wipe out what the action is about to say."""
        if self._timer is not None:
            self._timer.stop()
        self.workers.cancel_group(self, "check")

    async def _submit(self) -> None:
        spec, problems = await self._check(all_fields=True)
        where = self._place()
        if where is None:
            self._say("No backend answers: nothing can be made now.", error=True)
            return
        if problems:
            self._focus_problem()
            return
        if self._sandbox is not None:
            await self._apply(self._sandbox, spec)
        else:
            await self._create(Create(spec, *where))

    def _focus_problem(self) -> None:
        wrong = self.query("FormRow.-wrong Input")
        if wrong:
            wrong.first().focus()

    async def _create(self, action: Create) -> None:
        try:
            decision = await self._service.decide(action)
        except ConsoleError as error:
            self._say(error.message, error=True)
            return
        if isinstance(decision, Ask):
            body = Content(clean(decision.reason, cap=400))
            question = ConfirmScreen(f"Create {clean(action.spec.name)}?", body, "Create", command=command_line(action))
            if not await self.app.push_screen_wait(question):
                return
        await self._carry_out(action, Consent(yes=True), clean(action.spec.name))

    async def _apply(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        plan = await self._service.plan(sandbox, spec)
        if plan.how is None:
            self._say("Nothing differs.")
            return
        action = Update(sandbox.ref, spec)
        live = plan.how is How.LIVE
        consent = await self._flows.consent(action, sandbox, confirmed=live, effect=LIVE if live else ANEW)
        if consent is not None:
            await self._carry_out(action, consent, shown_name(sandbox))

    async def _carry_out(self, action: Create | Update, consent: Consent, name: str) -> None:
        self._operation = operation = self._work.start(action, consent, name)
        self._say("Creating…" if isinstance(action, Create) else "Applying…")
        async for line in operation.events():
            if self.is_attached:
                self._say(line)
        try:
            await operation.result()
        except ConsoleError as error:
            if self.is_attached:
                self._tell_failure(error, await self._what_is_left(action))
            return
        if self.is_current:
            self.dismiss()

    def _tell_failure(self, error: ConsoleError, left: str) -> None:
        if isinstance(error, InvalidSpec):
            self._tell(error.problems)
            self._focus_problem()
        else:
            self._say(
                " ".join(filter(None, (f"✕ {error.message}", error.hint and f"({error.hint})", left))), error=True
            )

    async def _what_is_left(self, action: Create | Update) -> str:
        """After an edit that failed: whether the old one is there, asked of the backend."""
        if isinstance(action, Create):
            return ""
        try:
            old = await self._service.inspect(action.ref)
        except ConsoleError as error:
            return f"The old sandbox could not be asked: {error.message}."
        return f"The old sandbox is as it was: {old.status}."


def _with_limits(spec: SandboxSpec, *, loose: bool) -> SandboxSpec:
    return structs.replace(spec, limits="best-effort" if loose else "strict")
