"""What the form asked for, carried out: a sandbox made, or one changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from sandbox_console.errors import ConsoleError, InvalidSpec
from sandbox_console.model.action import Create, Update
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.text import clean
from sandbox_console.service import Ask, Consent, Console, How, Operation
from sandbox_console.tui.actions.action_flow import ANEW, LIVE, Flows
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.text.formatting import shown_name

if TYPE_CHECKING:
    from sandbox_console.tui.form.form_screen import FormScreen


class FormWork:
    """One action at a time. The form may close while it goes on."""

    def __init__(self, form: FormScreen, console: Console, work: Work, flows: Flows) -> None:
        self._form = form
        self._service = console
        self._work = work
        self._flows = flows
        self._operation: Operation | None = None

    @property
    def going_on(self) -> bool:
        """Whether an action has begun and not ended."""
        return self._operation is not None and not self._operation.done

    async def create(self, action: Create) -> None:
        """Make a sandbox, after a question where a rule asks for one."""
        try:
            decision = await self._service.decide(action)
        except ConsoleError as error:
            self._form.say(error.message, error=True)
            return
        if isinstance(decision, Ask):
            body = Content(clean(decision.reason, cap=400))
            question = ConfirmScreen(f"Create {clean(action.spec.name)}?", body, "Create", command=command_line(action))
            if not await self._form.app.push_screen_wait(question):
                return
        await self._carry_out(action, Consent(yes=True), clean(action.spec.name))

    async def apply(self, sandbox: Sandbox, spec: SandboxSpec) -> None:
        """Change a sandbox to a spec, after a question where it is made anew."""
        plan = await self._service.plan(sandbox, spec)
        if plan.how is None:
            self._form.say("Nothing differs.")
            return
        action = Update(sandbox.ref, spec)
        live = plan.how is How.LIVE
        consent = await self._flows.consent(action, sandbox, confirmed=live, effect=LIVE if live else ANEW)
        if consent is not None:
            await self._carry_out(action, consent, shown_name(sandbox))

    async def _carry_out(self, action: Create | Update, consent: Consent, name: str) -> None:
        form = self._form
        self._operation = operation = self._work.start(action, consent, name)
        form.say("Creating…" if isinstance(action, Create) else "Applying…")
        async for line in operation.events():
            if form.is_attached:
                form.say(line)
        try:
            await operation.result()
        except ConsoleError as error:
            if form.is_attached:
                self._tell_failure(error, await self._what_is_left(action))
            return
        if form.is_current:
            form.dismiss()

    def _tell_failure(self, error: ConsoleError, left: str) -> None:
        if isinstance(error, InvalidSpec):
            self._form.tell(error.problems)
            self._form.body.focus_problem()
        else:
            hint = error.hint and f"({error.hint})"
            self._form.say(" ".join(filter(None, (f"✕ {error.message}", hint, left))), error=True)

    async def _what_is_left(self, action: Create | Update) -> str:
        """After an edit that failed: whether the old one is there, asked of the backend."""
        if isinstance(action, Create):
            return ""
        try:
            old = await self._service.inspect(action.ref)
        except ConsoleError as error:
            return f"The old sandbox could not be asked: {error.message}."
        return f"The old sandbox is as it was: {old.status}."
