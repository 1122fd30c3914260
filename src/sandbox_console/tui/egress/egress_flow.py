"""Changes a rule for a host in a feed: asks the questions, then runs one action for each sandbox."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import App
from textual.content import Content

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import ChangeEgress
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.service import Console, Operation, has_gateway, same_template
from sandbox_console.tui.actions.action_flow import Flows
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.egress.draft import Draft
from sandbox_console.tui.egress.egress_text import commands, diff_lines, note_lines, patterns_of, with_hosts
from sandbox_console.tui.egress.rule_dialog import EgressAskScreen
from sandbox_console.tui.keys.keymap import key_of
from sandbox_console.tui.state.messages import EgressRequested
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.text.formatting import shown_name


class EgressFlow:
    """Runs in a worker of the app."""

    def __init__(self, app: App[None], console: Console, work: Work, flows: Flows, clock: Callable[[], float]) -> None:
        self._app = app
        self._console = console
        self._work = work
        self._flows = flows
        self._clock = clock

    async def ask(self, asked: EgressRequested) -> None:
        """Show the question, and start the actions that the user agreed to."""
        patterns = patterns_of(asked.host, asked.port, allow=asked.allow)
        if not patterns:
            self._app.notify(
                f"{clean(asked.host, cap=100)} is not a host name: no rule can name it.", severity="warning"
            )
            return
        alike = await self._alike(asked.sandboxes)
        screen = EgressAskScreen(self._console, self._clock, patterns, asked.sandboxes, alike, allow=asked.allow)
        answer = await self._app.push_screen_wait(screen)
        for action, sandbox in answer.actions if answer else ():
            consent = await self._flows.consent(action, sandbox, confirmed=True)
            if consent is not None:
                self._work.start(action, consent, shown_name(sandbox))

    def draft(self, sandboxes: Sequence[Sandbox]) -> None:
        """Open a draft for one of the sandboxes, or say that none of them has a gateway."""
        from sandbox_console.tui.egress.draft_screen import EgressDraftScreen

        found = [sandbox for sandbox in sandboxes if has_gateway(sandbox)]
        if found:
            self._app.push_screen(EgressDraftScreen(self._console, self.apply, self._clock, found))
        else:
            self._app.notify(_no_draft(sandboxes, key_of(self._app, "edit")), severity="warning")

    async def apply(self, action: ChangeEgress, draft: Draft) -> Operation | None:
        """Request confirmation to replace the rules with a draft, and start it. Returns None if the user declines."""
        from sandbox_console.tui.egress.draft_text import impact_words

        sandbox, now = draft.sandbox, self._clock()
        parts = [
            *diff_lines(draft.rules, draft.after(action), now, most=6),
            ("\n\n" + impact_words(draft.trial), ""),
            ("\nOpen connections that no rule allows any more are cut.", "$dim"),
            *note_lines(draft.notes(action)),
        ]
        title, command = f"Apply the draft to {shown_name(sandbox)}?", " && ".join(commands(action, now))
        question = ConfirmScreen(title, Content.assemble(*parts), "Apply", command=command)
        if not await self._app.push_screen_wait(question):
            return None
        consent = await self._flows.consent(action, sandbox, confirmed=True)
        return self._work.start(action, consent, shown_name(sandbox)) if consent is not None else None

    async def _alike(self, sandboxes: Sequence[Sandbox]) -> Sequence[Sandbox]:
        """Return the current sandboxes of the same templates."""
        try:
            everyone, _ = await self._console.list()
        except ConsoleError:
            return sandboxes
        found = {other.ref: other for sandbox in sandboxes for other in same_template(sandbox, everyone)}
        return list(found.values())


def _no_draft(sandboxes: Sequence[Sandbox], edits: str) -> str:
    if not sandboxes:
        return "No sandbox is selected."
    name = shown_name(sandboxes[0])
    if not sandboxes[0].managed:
        return f"{name}: another tool made it, so this console cannot change its egress."
    return f"{name} was made without egress: there are no rules to draft. {with_hosts(edits)}"
