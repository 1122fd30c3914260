"""The form of several sandboxes: what they share, one plan for all, and one question."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Update
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Console, spec_of
from sandbox_console.tui.actions.cli_command import bulk_command
from sandbox_console.tui.base.static_text import put
from sandbox_console.tui.form.form_base import FormBase
from sandbox_console.tui.form.several_plan import Edit, look, planned, several_words
from sandbox_console.tui.form.shared_body import SharedBody
from sandbox_console.tui.form.shared_fields import with_changes
from sandbox_console.tui.state.messages import BulkRequested
from sandbox_console.tui.state.verbs import Look, Verb
from sandbox_console.tui.text.formatting import many, shown_name

_AT_ONCE = 8
_NAMED = 5


class SeveralScreen(FormBase):
    """Changes only the fields that were edited. ``hidden`` are sandboxes that the list does not show."""

    def __init__(self, console: Console, sandboxes: Sequence[Sandbox], hidden: Collection[SandboxRef]) -> None:
        super().__init__(console, None, None, sandboxes)
        self._sandboxes = sandboxes
        self._hidden = hidden

    @property
    def title_words(self) -> str:
        names = ", ".join(shown_name(one) for one in self._sandboxes[:_NAMED])
        more = f" and {len(self._sandboxes) - _NAMED} more" if len(self._sandboxes) > _NAMED else ""
        return f"Edit {many(len(self._sandboxes))}: {names}{more}"

    def make_body(self) -> SharedBody:
        self._fields = SharedBody(self._sandboxes, self._service, self.draft, self.console_app.now)
        return self._fields

    async def check(self, *, all_fields: bool = False) -> None:
        await self._checked(all_fields=all_fields)

    async def _checked(self, *, all_fields: bool) -> Mapping[str, str]:
        """Show the plan and the problems. Returns the problems that all of them have."""
        problems = dict(self._unread())
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def one(sandbox: Sandbox) -> Edit | ConsoleError:
            async with at_once:
                try:
                    return await planned(self._service, sandbox, self._spec(sandbox))
                except ConsoleError as error:
                    return error

        found = await asyncio.gather(*map(one, self._sandboxes))
        edits = [edit for edit in found if isinstance(edit, Edit)]
        if silent := next((edit for edit in found if isinstance(edit, ConsoleError)), None):
            problems["backend"] = silent.message
        problems = _common(edits) | problems
        put(self, "#plan", several_words(edits, self.plan_width))
        self.show_preview()
        self.show_problems(problems, all_fields=all_fields)
        return problems

    def _unread(self) -> Mapping[str, str]:
        return self._fields.changed(spec_of(self._sandboxes[0]))[1]

    def _spec(self, sandbox: Sandbox) -> SandboxSpec:
        return self._fields.changed(spec_of(sandbox))[0]

    def written(self) -> tuple[str, SandboxSpec | None]:
        pairs = [(Update(one.ref, self._spec(one)), spec_of(one)) for one in self._sandboxes]
        changing = [(action, before) for action, before in pairs if action.spec != before]
        masked = [self._service.masking.action(action) for action, _ in changing]
        return bulk_command(masked, [before for _, before in changing]), None

    async def submit(self) -> None:
        if await self._checked(all_fields=True):
            self.body.focus_problem()
        elif not self._fields.typed:
            self.show_status("Nothing differs.")
        else:
            self.app.post_message(BulkRequested(self._verb(), self._sandboxes, self._hidden, self.done))

    def _verb(self) -> Verb:
        """Return the change of what was typed, which does not depend on the form any longer."""
        typed, shared, service, app = self._fields.typed, self._fields.shared, self._service, self.console_app

        def by_now(sandbox: Sandbox) -> Sandbox:
            """Return it with what somebody else has changed since the form was opened."""
            return app.fleet.sandboxes.get(sandbox.ref, sandbox) if sandbox.spec else sandbox

        def update(sandbox: Sandbox) -> Update:
            return Update(sandbox.ref, with_changes(spec_of(by_now(sandbox)), typed, shared)[0])

        async def looked(sandbox: Sandbox) -> Look:
            return await look(service, await planned(service, by_now(sandbox), update(sandbox).spec), app.now())

        effect = "Each is changed as its note says; one whose change fails stays as it was."
        return Verb("update", "e", "Edit", effect, update, frozenset(Status), look=looked)


def _common(edits: Sequence[Edit]) -> dict[str, str]:
    """Return the problems of fields that no sandbox is without."""
    first = edits[0].problems if edits else {}
    return {name: text for name, text in first.items() if all(name in edit.problems for edit in edits)}
