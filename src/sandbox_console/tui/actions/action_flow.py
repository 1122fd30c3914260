"""Takes a request to the console: the policy's verdict, the confirmation, and the action."""

from __future__ import annotations

from typing import Protocol

from textual.app import App
from textual.content import Content

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action, Attach, OpenShell, Quarantine, Release, Update
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import ascii_id, clean
from sandbox_console.service import Ask, Consent, Console, spec_of
from sandbox_console.service.incident.quarantine import plan as plan_quarantine
from sandbox_console.tui.actions.cli_command import command_line
from sandbox_console.tui.actions.consent import consent_to
from sandbox_console.tui.actions.outcome import change_words
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen, Keep
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.state.operations import Work
from sandbox_console.tui.state.verbs import Naming, accepted, must_type, verb_of
from sandbox_console.tui.text.drift_text import drift_parts
from sandbox_console.tui.text.formatting import SHORT_ID, STATUS, sandbox_host, shown_name

RECREATED = "It is recreated: what it wrote outside its workspace is lost. If that fails, the old one stays."
CHANGED_LIVE = "It is changed while it goes on running."


class AskConsent(Protocol):
    """Asks the user for consent if the policy or the action requires it. Returns None if they decline."""

    async def __call__(
        self,
        action: Action,
        sandbox: Sandbox,
        *,
        confirmed: bool = False,
        effect: str = "",
        changes: Content | None = None,
        keep: Keep | None = None,
    ) -> Consent | None: ...


class Flows:
    """The steps from a key press to an action. Each runs in a worker of the app."""

    def __init__(self, app: App[None], console: Console, work: Work) -> None:
        self._app = app
        self._console = console
        self._work = work

    async def act(self, action: Action, sandbox: Sandbox) -> None:
        """Confirm an action and start it. An action that the policy forbids is tried anyway: the gate records it."""
        consent = await self.consent(action, sandbox, changes=await self._steps(action, sandbox))
        if consent is not None:
            self._work.start(action, consent, shown_name(sandbox))

    async def _steps(self, action: Action, sandbox: Sandbox) -> Content | None:
        """Return the steps of a quarantine, or of releasing one, or what differs from the spec, for the question."""
        if isinstance(action, Update):
            parts = list(drift_parts(await self._console.drifts.fields(sandbox)))
            return Content.assemble(*parts) if parts else None
        if not isinstance(action, Quarantine | Release):
            return None
        try:
            steps = await plan_quarantine(self._console, sandbox)
        except ConsoleError as error:
            return Content.styled(error.message, "$text-warning")
        if isinstance(action, Release):
            lines = [f"{step.what:<10}  {step.undo}" for step in steps if step.undo]
        else:
            lines = [f"{step.what:<10}  {step.text}" + (f" (undo: {step.undo})" if step.undo else "") for step in steps]
        return Content("\n".join(clean(line, cap=200) for line in lines))

    async def named(self, naming: Naming, sandbox: Sandbox) -> None:
        """Ask for the word that a verb takes, and start it. Typing the word also counts as a plain yes."""
        word = await self._app.push_screen_wait(
            AskScreen(
                f"{naming.asks} {shown_name(sandbox)}", naming.hint, naming.suggest(sandbox), help_text=naming.effect,
                command=lambda typed: command_line(naming.make(sandbox, typed)),
            )
        )  # fmt: skip
        if not word or word == naming.suggest(sandbox):
            return
        action = naming.make(sandbox, word)
        consent = await self.consent(action, sandbox, confirmed=True, effect=naming.effect)
        if consent is not None:
            self._work.start(action, consent, shown_name(sandbox))

    async def changes(self, sandbox: Sandbox) -> None:
        """Show how the sandbox's files differ from its image."""
        try:
            found = await self._console.inside.changes(sandbox.ref)
        except ConsoleError as error:
            self._app.notify(error.message, title="changes", severity="warning")
            return
        words = change_words(found, f"sandbox-console diff {sandbox.ref}")
        self._app.push_screen(TextScreen(f"Changed in {shown_name(sandbox)} since its image", words))

    async def consent(
        self,
        action: Action,
        sandbox: Sandbox,
        *,
        confirmed: bool = False,
        effect: str = "",
        changes: Content | None = None,
        keep: Keep | None = None,
    ) -> Consent | None:
        """Return the user's consent, or None if they decline. ``confirmed`` means that they already gave a plain yes.

        The question lists ``changes``, and has ``keep`` as a third answer.
        """

        async def answer(question: Ask | None) -> bool:
            if question is None and (confirmed or isinstance(action, OpenShell | Attach)):
                return True
            reason, token = (question.reason, question.token) if question else ("", "")
            asked = confirmation(self._console.masking.action(action), sandbox, reason, token, effect, changes, keep)
            agrees: bool = await self._app.push_screen_wait(asked)
            return agrees

        return await consent_to(self._console, action, sandbox, answer)


def confirmation(
    action: Action,
    sandbox: Sandbox,
    reason: str = "",
    token: str = "",
    effect: str = "",
    changes: Content | None = None,
    keep: Keep | None = None,
) -> ConfirmScreen:
    """Return the question for an action. It shows what the action affects, by name and ASCII id."""
    verb = verb_of(action)
    typed = bool(token) or (verb is not None and must_type(verb, sandbox, token))
    label = verb.label if verb else {"shell": "Open shell", "update": "Apply"}.get(action.verb, action.verb.title())
    short = ascii_id(sandbox.ref.id)[:SHORT_ID]
    return ConfirmScreen(
        f"{label} {shown_name(sandbox)}?",
        _body(sandbox, effect or (verb.effect if verb else ""), reason),
        label,
        command=command_line(action, spec_of(sandbox), token),
        danger=(verb is not None and verb.danger) or effect == RECREATED,
        accepts=(lambda text: accepted(text, sandbox)) if typed else None,
        to_type=short,
        listed=changes,
        keep=keep,
    )


def _body(sandbox: Sandbox, effect: str, reason: str) -> Content:
    glyph, _ = STATUS[sandbox.status]
    parts = [
        ("Sandbox  ", "$dim"), (f"{shown_name(sandbox)}  {glyph} {sandbox.status}\n", "bold"),
        ("Id       ", "$dim"), (f"{ascii_id(sandbox.ref.id)}\n", ""),
        ("Where    ", "$dim"), (sandbox_host(sandbox), ""),
    ]  # fmt: skip
    if effect:
        parts.append((f"\n\n{effect}", ""))
    if reason:
        parts.append((f"\n\n{clean(reason, cap=400)}", "$text-warning"))
    return Content.assemble(*parts)
