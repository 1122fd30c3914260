"""From what a person asks to the console: what the policy says, what must be confirmed, then the action."""

from __future__ import annotations

from textual.app import App
from textual.content import Content

from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Action, OpenShell, Update
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import ascii_id, clean
from sandbox_console.service import Ask, Consent, Console
from sandbox_console.tui.messages import ConsentAsked, ShellAsked
from sandbox_console.tui.offers import VERBS, accepted, command_line, must_type
from sandbox_console.tui.panes.shell import ShellPane
from sandbox_console.tui.screens.confirm import ConfirmScreen
from sandbox_console.tui.words import SHORT_ID, STATUS, place, shown_name
from sandbox_console.tui.work import Work


class Flows:
    """The steps between a key and an action. Each runs in a worker of the app."""

    def __init__(self, app: App[None], console: Console, work: Work) -> None:
        self._app = app
        self._console = console
        self._work = work

    async def act(self, action: Action, sandbox: Sandbox) -> None:
        """Confirm an action and start it. What the policy forbids is tried all the same: the gate records it."""
        consent = await self.consent(action, sandbox)
        if consent is not None:
            self._work.start(action, consent, shown_name(sandbox))

    async def consent(self, action: Action, sandbox: Sandbox, *, confirmed: bool = False) -> Consent | None:
        """What a person agrees to; None when they do not. ``confirmed``: a plain yes was given already."""
        try:
            decision = await self._console.decide(action, sandbox)
        except ConsoleError:
            return Consent()  # performing it says the same, and leaves a row
        token = decision.token if isinstance(decision, Ask) else ""
        reason = decision.reason if isinstance(decision, Ask) else ""
        plain_yes = isinstance(action, OpenShell) and not isinstance(decision, Ask)
        if plain_yes or (confirmed and not reason):
            return Consent(yes=True)
        if not await self._app.push_screen_wait(confirmation(action, sandbox, reason, token)):
            return None
        return Consent(yes=True, confirm=token)

    async def agree(self, asked: ConsentAsked) -> None:
        """Answer a pane that moves files: a key was a plain yes, the policy may want more."""
        consent: Consent | None = None
        try:
            consent = await self.consent(asked.action, asked.sandbox, confirmed=True)
        finally:
            if not asked.answer.done():  # the pane may have given up waiting
                asked.answer.set_result(consent)

    async def shell(self, asked: ShellAsked, pane: ShellPane) -> None:
        """Open a shell through the gate and put it on screen."""
        sandbox = asked.sandbox
        request = OpenShell(sandbox.ref, cols=asked.cols, rows=asked.rows)
        consent = await self.consent(request, sandbox)
        if consent is None:
            pane.refused(sandbox, "not confirmed")
            return
        try:
            session = await self._console.shell(request, consent=consent)
        except ConsoleError as error:
            pane.refused(sandbox, error.message + (f" ({error.hint})" if error.hint else ""))
            self._app.notify(error.message, title=f"shell in {shown_name(sandbox)}", severity="error")
            return
        await pane.opened(sandbox, session)


def confirmation(action: Action, sandbox: Sandbox, reason: str = "", token: str = "") -> ConfirmScreen:
    """The question for an action: what it touches, by name and ASCII id."""
    verb = VERBS.get(action.verb)
    typed = bool(token) or (verb is not None and must_type(verb, sandbox, token))
    label = verb.label if verb else {"shell": "Open shell", "update": "Apply"}.get(action.verb, action.verb.title())
    short = ascii_id(sandbox.ref.id)[:SHORT_ID]
    return ConfirmScreen(
        f"{label} {shown_name(sandbox)}?",
        _body(action, sandbox, verb.effect if verb else "", reason),
        label,
        command=command_line(action),
        danger=(verb is not None and verb.danger) or isinstance(action, Update),
        accepts=(lambda text: accepted(text, sandbox)) if typed else None,
        to_type=short,
    )


def _body(action: Action, sandbox: Sandbox, effect: str, reason: str) -> Content:
    glyph, _ = STATUS[sandbox.status]
    parts = [
        ("Sandbox  ", "$dim"), (f"{shown_name(sandbox)}  {glyph} {sandbox.status}\n", "bold"),
        ("Id       ", "$dim"), (f"{ascii_id(sandbox.ref.id)}\n", ""),
        ("Where    ", "$dim"), (place(sandbox), ""),
    ]  # fmt: skip
    if isinstance(action, Update):
        effect = "It is made anew: what it wrote outside its workspace is lost. If that fails the old one stays."
    if effect:
        parts.append((f"\n\n{effect}", ""))
    if reason:
        parts.append((f"\n\n{clean(reason, cap=400)}", "$text-warning"))
    return Content.assemble(*parts)
