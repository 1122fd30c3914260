"""The part of the form that keeps what is typed, by storing a draft and asking before it is discarded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from textual import getters
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.service import Console, find_paths
from sandbox_console.service.reads.visible_records import person_of
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen, LeaveScreen
from sandbox_console.tui.form.form_body import FormBody
from sandbox_console.tui.form.form_draft import Draft, DraftFile


class FormWithDraft(Screen[None]):
    """A form whose fields are in ``body``. ``draft`` is what was typed into it earlier and not applied.

    It is about ``sandbox``, about ``several``, or about a new one.
    """

    DEFAULT_CSS = """
    FormWithDraft > #draft-note { height: auto; padding: 0 2; color: $text-warning; display: none; }
    FormWithDraft.-draft > #draft-note { display: block; }
    """
    console_app = getters.app(BaseApp)
    body: FormBody

    def __init__(
        self, console: Console, sandbox: Sandbox | None, begin: Draft | None = None, several: Sequence[Sandbox] = ()
    ) -> None:
        super().__init__()
        self._service = console
        self._sandbox = sandbox
        refs = sorted(str(one.ref) for one in (*several, *([sandbox] if sandbox else [])))
        about = "\0".join([_whose(console.audit_log.actor), *(refs or [""])])
        self._file = DraftFile(find_paths().state / "drafts", about)
        self.draft = begin or self._file.take() or Draft({})
        self._learned = self._warned = False

    @property
    def busy(self) -> bool:
        """Whether an action that the form started has not ended."""
        return False

    def draft_note(self) -> Static:
        """Return the line that says that a draft was restored."""
        if self.draft.note:
            return Static(plain(self.draft.note), id="draft-note", markup=False)
        at = f"{datetime.fromtimestamp(self.draft.at).astimezone():%d %b %H:%M}"
        words = f"Restored your unsaved changes of {at}. Ctrl+R discards them."
        if lacks := self.draft.lacks:
            words += f" Left out because they may be secret: {lacks}."
        return Static(plain(words), id="draft-note", markup=False)

    def begin_keeping(self) -> None:
        """Store what is typed from now on, as soon as known secrets can be recognised."""
        self.set_class(bool(self.draft.texts or self.draft.left_out), "-draft")
        self.run_worker(self._learn(), group="learn")

    async def _learn(self) -> None:
        await self._service.secrets.learn()
        self._learned = True
        self.keep_draft()

    def on_unmount(self) -> None:
        """Leave the draft for the next form."""
        self._file.close()

    def keep_draft(self) -> None:
        """Write what is typed to the draft, or remove the draft if nothing differs."""
        typed = self.body.typed
        if not self._learned:
            return
        if not typed:
            self.drop_draft()
            return
        try:
            self._file.write(typed, self.body.host, self.console_app.now(), self._service.secrets.masked)
        except OSError as error:
            if not self._warned:
                self._warned = True
                self.notify(f"Your draft cannot be saved: {error.strerror}", title="draft", severity="warning")

    def drop_draft(self) -> None:
        """Remove the draft."""
        self._file.drop()

    def action_start_over(self) -> None:
        """Discard everything that was typed, after a question."""
        if self.app.screen is self and self.body.typed:
            words = Content("Every field gets its original value back.")
            self.app.push_screen(ConfirmScreen("Start over?", words, "Start over"), self._start_over)

    def _start_over(self, agreed: bool | None) -> None:
        if agreed:
            self.body.reset()
            self.remove_class("-draft")

    def action_close(self) -> None:
        """Leave the form, after a question if input would be lost. An action that it started continues."""
        if self.busy or not self.body.typed:
            self.dismiss()
            return
        words = "Your changes have not been applied. They can be kept as a draft for the next time you open this form."
        self.app.push_screen(LeaveScreen("Leave the form?", Content(words), "Discard", leave="Go on"), self._answered)

    def _answered(self, discard: bool | None) -> None:
        if discard:
            self.drop_draft()
        if discard is not False:
            self.dismiss()


def _whose(actor: str) -> str:
    """Whose drafts an actor finds: a person's in every session, as each session of the page is another actor."""
    if person := person_of(actor):
        return f"person {person}"
    return "page" if actor.startswith("browser:") else actor  # with the server's own token
