"""The form that creates or changes a sandbox. Shows errors beside their fields, and the plan before it is applied."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import structs

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Create, Update
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Console, How, differing, spec_of
from sandbox_console.tui.actions.action_flow import AskConsent
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.base.static_text import put, put_note
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.form.change_plan import plan_words
from sandbox_console.tui.form.form_base import FormBase
from sandbox_console.tui.form.form_body import FormBody
from sandbox_console.tui.form.form_draft import Draft
from sandbox_console.tui.form.submit import FormWork
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.text.formatting import shown_name


class FormScreen(FormBase):
    """Closing it does not cancel what it started. ``fixed`` has the reasons why fields cannot be changed."""

    def __init__(self, console: Console, work: Work, consent: AskConsent, sandbox: Sandbox | None = None,
                 fixed: Mapping[str, str] | None = None, begin: Draft | None = None) -> None:  # fmt: skip
        super().__init__(console, sandbox, begin)
        self._doing = FormWork(self, console, work, consent)
        self._fixed = fixed or {}
        self.editing = sandbox is not None

    @property
    def title_words(self) -> str:
        return f"Edit {shown_name(self._sandbox)}" if self._sandbox else "New sandbox"

    def make_body(self) -> FormBody:
        now = self.console_app.now
        return FormBody(self._sandbox, self._fixed, self.places(), self._service, self.draft, now)

    async def check(self, *, all_fields: bool = False) -> None:
        await self._checked(all_fields=all_fields)

    async def _checked(self, *, all_fields: bool) -> tuple[SandboxSpec, Mapping[str, str]]:
        """Read the form and show its problems. Returns the spec and all problems."""
        spec, problems = self.body.read()
        if (where := self.body.host) is not None:
            try:
                self._able = await self._service.capabilities(*where)
                found = await self._service.problems(spec, *where)
                if self._sandbox is not None and self._sandbox.spec is None:  # another tool's values are not checked
                    found = differing(self._sandbox, spec, found)
                problems = {**found, **problems}
            except ConsoleError as error:
                problems = {**problems, "backend": error.message}
        if self._sandbox is None and not spec.image:
            problems = {"image": "an image is needed; for bubblewrap, host is one", **problems}
        problems |= await self._show_plan(spec)
        self._show_notes(spec)
        self.show_preview()
        self.show_problems(problems, all_fields=all_fields)
        return spec, problems

    async def _show_plan(self, spec: SandboxSpec) -> dict[str, str]:
        """Show how each change would be applied. Returns the changes that are impossible."""
        if self._sandbox is None:
            return {}
        try:
            plan = await self._service.plan(self._sandbox, spec)
        except ConsoleError as error:
            return {"backend": error.message}
        put(self, "#plan", plan_words(plan, self.plan_width))
        return {
            change.field: change.reason or "unsupported" for change in plan.changes if change.how is How.UNSUPPORTED
        }

    def _show_notes(self, spec: SandboxSpec) -> None:
        """Show where secrets and egress do not fit. For an edit, the plan shows it."""
        where = self.body.host
        notes = self._service.secrets.notes(spec, *where) if self._sandbox is None and where else ()
        put_note(self, "#secret-notes", plain("\n".join(f"! {text}" for text in notes)))

    def written(self) -> tuple[str, SandboxSpec | None]:
        spec, _ = self.body.read()
        if self._sandbox is not None:
            update = self._service.masking.action(Update(self._sandbox.ref, spec))
            return command_line(update, spec_of(self._sandbox)), self._service.masking.spec(spec)
        backend, host = self.body.host or ("BACKEND", "HOST")
        named = structs.replace(spec, name=spec.name or "NAME", image=spec.image or "IMAGE")
        command = command_line(self._service.masking.action(Create(named, backend, host)))
        return command, self._service.masking.spec(spec)

    def refuse(self, problems: Mapping[str, str]) -> None:
        """Show problems, and go to the first field that has one."""
        self.tell(problems)
        self.body.focus_problem()

    async def ask(self, question: ConfirmScreen) -> bool:
        """Show a question over the form."""
        answer = await self.console_app.push_screen_wait(question)
        return bool(answer)

    @property
    def busy(self) -> bool:
        return self._doing.going_on

    async def submit(self) -> None:
        spec, problems = await self._checked(all_fields=True)
        where = self.body.host
        if where is None:
            self.show_status("No backend answers: a sandbox cannot be created now.", error=True)
            return
        if problems:
            self.body.focus_problem()
            return
        if self._sandbox is not None:
            await self._doing.apply(self._sandbox, spec)
        else:
            await self._doing.create(Create(spec, *where))
