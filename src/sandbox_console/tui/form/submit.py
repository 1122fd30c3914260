"""Submits the form: creates a sandbox, or changes one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from msgspec import structs
from textual.content import Content

from sandbox_console.errors import ConsoleError, InvalidSpec
from sandbox_console.model.action import Commit, Create, Update
from sandbox_console.model.capability import Capability
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.text import clean
from sandbox_console.service import Ask, Consent, Console, How, Operation, spec_of
from sandbox_console.service.reads.losses import kept_image
from sandbox_console.tui.actions.action_flow import CHANGED_LIVE, RECREATED, AskConsent
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.actions.consent import consent_to
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen, Keep
from sandbox_console.tui.form.change_plan import change_lines
from sandbox_console.tui.form.loss_text import loss_text
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.text.formatting import error_words, shown_name

QUESTION_WIDTH = 64
"""Cells in a row of the changes that the question lists."""


class FormPage(Protocol):
    """The page that shows messages about the work while it runs."""

    @property
    def is_open(self) -> bool: ...

    def show_status(self, text: str, *, error: bool = False) -> None: ...

    def refuse(self, problems: Mapping[str, str]) -> None: ...

    async def ask(self, question: ConfirmScreen) -> bool: ...

    def done(self) -> None: ...


class FormWork:
    """Runs one action at a time. The form may close while it runs."""

    def __init__(self, form: FormPage, console: Console, work: Work, consent: AskConsent) -> None:
        self._form = form
        self._service = console
        self._work = work
        self._consent = consent
        self._operation: Operation | None = None

    @property
    def going_on(self) -> bool:
        """Whether an action has started and not ended."""
        return self._operation is not None and not self._operation.done

    async def create(self, action: Create) -> None:
        """Create a sandbox, after a question if a rule requires one."""

        async def answer(asked: Ask | None) -> bool:
            if asked is None:
                return True
            body, title = Content(clean(asked.reason, cap=400)), f"Create {clean(action.spec.name)}?"
            command = command_line(self._service.masking.action(action))
            return await self._form.ask(ConfirmScreen(title, body, "Create", command=command))

        consent = await consent_to(self._service, action, None, answer)
        if consent is not None:
            await self._carry_out(action, consent, clean(action.spec.name))

    async def apply(self, shown: Sandbox, spec: SandboxSpec) -> None:
        """Make the changes that lead from the spec of ``shown`` to another one, after a question that lists them.

        They are made to the sandbox as it is now: somebody else may have changed other fields meanwhile.
        """
        try:
            sandbox = await self._service.inspect(shown.ref)
            spec = changes_on(sandbox, shown, spec)
            plan = await self._service.plan(sandbox, spec)
        except ConsoleError as error:
            self._tell_failure(error, "Nothing was changed.")
            return
        if plan.how is None:
            self._form.show_status("Nothing differs.")
            return
        action = Update(sandbox.ref, spec)
        changes, live = change_lines(plan, QUESTION_WIDTH), plan.how is How.LIVE
        at, keep = time.time(), None
        if plan.how is How.RECREATE:
            self._form.show_status("Looking for what would be lost…")
            able = await self._service.capabilities(sandbox.ref.backend, sandbox.ref.host)
            commits = "" if able.has(Capability.COMMIT) else able.reason(Capability.COMMIT)
            lost = loss_text(await self._service.losses(sandbox), sandbox, commits=commits, at=at)
            changes, keep = Content.assemble(changes, lost), None if commits else Keep("Commit first")
            self._form.show_status("")
        consent = await self._consent(
            action, sandbox, effect=CHANGED_LIVE if live else RECREATED, changes=changes, keep=keep
        )
        if consent is None:
            return
        if await self._differs_by_now(sandbox):
            self._form.show_status(
                "✕ Somebody changed it meanwhile. Apply again to see what that makes of it.", error=True
            )
            return
        if keep is None or not keep.chosen or await self._commit(sandbox, consent, at):
            await self._carry_out(action, consent, shown_name(sandbox))

    async def _differs_by_now(self, sandbox: Sandbox) -> bool:
        """Whether a sandbox was changed while the question was open, so that the plan is no longer true."""
        try:
            return (await self._service.inspect(sandbox.ref)).spec != sandbox.spec
        except ConsoleError:
            return False  # the action itself says what is wrong

    async def _commit(self, sandbox: Sandbox, consent: Consent, at: float) -> bool:
        """Make an image of a sandbox before it is replaced. Return whether that succeeded."""
        commit = Commit(sandbox.ref, kept_image(sandbox.name, at))
        self._operation = self._work.start(commit, consent, shown_name(sandbox), lambda: self._form.is_open)
        self._form.show_status(f"Committing to {commit.image}…")
        try:
            await self._operation.result()
        except ConsoleError as error:
            if self._form.is_open:
                self._tell_failure(error, "Nothing was changed.")
            return False
        return True

    async def _carry_out(self, action: Create | Update, consent: Consent, name: str) -> None:
        form = self._form
        self._operation = operation = self._work.start(action, consent, name, lambda: form.is_open)
        form.show_status("Creating…" if isinstance(action, Create) else "Applying…")
        async for line in operation.events():
            if form.is_open:
                form.show_status(line)
        try:
            await operation.result()
        except ConsoleError as error:
            if form.is_open:
                self._tell_failure(error, await self._what_is_left(action))
            return
        form.done()

    def _tell_failure(self, error: ConsoleError, left: str) -> None:
        if isinstance(error, InvalidSpec):
            self._form.refuse(error.problems)
        else:
            self._form.show_status(" ".join(filter(None, (f"✕ {error_words(error)}", left))), error=True)

    async def _what_is_left(self, action: Create | Update) -> str:
        """Return whether the old sandbox still exists after a failed edit, according to the backend."""
        if isinstance(action, Create):
            return ""
        try:
            old = await self._service.inspect(action.ref)
        except ConsoleError as error:
            return f"The state of the old sandbox is not known: {error.message}."
        return f"The old sandbox is as it was: {old.status}."


def changes_on(sandbox: Sandbox, shown: Sandbox, spec: SandboxSpec) -> SandboxSpec:
    """Return the spec of a sandbox with the fields that a form changed, which began with the spec of ``shown``."""
    before = spec_of(shown)
    return structs.replace(spec_of(sandbox), **{
        name: getattr(spec, name) for name in spec.__struct_fields__ if getattr(spec, name) != getattr(before, name)
    })  # fmt: skip
