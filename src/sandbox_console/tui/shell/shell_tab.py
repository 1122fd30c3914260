"""Shells, one for each sandbox. They stay open while other tabs and rows are shown."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import ContentSwitcher, Static

from sandbox_console.model.sandbox import Exit, Sandbox, SandboxRef, Status
from sandbox_console.model.text import clean
from sandbox_console.service import ShellSession
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.keys.keymap import hint, key_of
from sandbox_console.tui.shell.terminal_link import ShellLink, ask_about_paste
from sandbox_console.tui.state.fleet_state import News, ShellClosed, ShellOpened
from sandbox_console.tui.state.messages import ShellAsked
from sandbox_console.tui.text.formatting import LEAVE_KEY, exit_words, shown_name

if TYPE_CHECKING:
    from sandbox_console.tui.widgets.terminal.terminal import TerminalView


QUIET_S = 0.7
"""After a shell ends, keys are ignored until none arrives for this long, as keys for it must not act elsewhere."""


class ShellNotice(Static, can_focus=True):
    """Shown where no shell is open. Holds keys that are typed while one is being opened."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "screen.shell", "Open a shell")]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.holding = False
        self.typed_at = 0.0
        self._held: list[events.Key | events.Paste] = []

    def hold(self) -> None:
        """Hold every key from now on."""
        self.holding = True
        self._held.clear()

    def release(self) -> list[events.Key | events.Paste]:
        """Stop holding keys. Returns what was typed and pasted in the meantime."""
        self.holding = False
        held, self._held = self._held, []
        return held

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002 - Textual's signature
        """Return whether a key is held rather than looked up in the bindings."""
        return key != LEAVE_KEY and (self.holding or monotonic() - self.typed_at < QUIET_S)

    def on_key(self, event: events.Key) -> None:
        if self.check_consume_key(event.key, event.character):
            event.stop()
            event.prevent_default()
            self.typed_at = monotonic()
            if self.holding:
                self._held.append(event)

    def on_paste(self, event: events.Paste) -> None:
        if self.holding:
            event.stop()
            self._held.append(event)


class ShellPane(Vertical):
    """The shells of all sandboxes, with the selected one's on top."""

    DEFAULT_CSS = """
    ShellPane { height: 1fr; }
    ShellPane > ContentSwitcher { height: 1fr; }
    ShellPane #shell-none { padding: 1 2; color: $text-muted; height: 1fr; }
    ShellPane > #shell-status {
        height: 1;
        padding: 0 1;
        background: $panel;
        color: $text-muted;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def __init__(self, publish: Callable[[News], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._publish = publish
        self._links: dict[SandboxRef, ShellLink] = {}
        self._ends: dict[SandboxRef, str] = {}
        self._asking: set[SandboxRef] = set()
        self._sandbox: Sandbox | None = None
        self._count = 0

    def compose(self) -> ComposeResult:
        with ContentSwitcher(initial="shell-none"):
            yield ShellNotice(id="shell-none")
        yield Static(id="shell-status")

    @property
    def open_count(self) -> int:
        """The number of open shells."""
        return sum(not link.ended for link in self._links.values())

    @property
    def in_terminal(self) -> bool:
        """Whether keys go to a guest."""
        return any(link.view.has_focus for link in self._links.values())

    def show(self, sandbox: Sandbox | None) -> None:
        """Show a sandbox's shell, or that it has none."""
        self._sandbox = sandbox
        link = self._links.get(sandbox.ref) if sandbox else None
        switcher = self.query_one(ContentSwitcher)
        switcher.current = link.view.id if link else "shell-none"
        self.query_one("#shell-none", ShellNotice).update(self._notice())
        self.query_one("#shell-status", Static).update(self._status(link))

    def enter(self, sandbox: Sandbox) -> None:
        """Go to a sandbox's shell, and request one if none is open."""
        self.show(sandbox)
        link = self._links.get(sandbox.ref)
        if link is not None and not link.ended:
            link.view.focus()
        elif sandbox.ref not in self._asking:
            self._asking.add(sandbox.ref)
            self.show(sandbox)
            notice = self.query_one(ShellNotice)
            notice.hold()
            notice.focus()
            area = self.query_one(ContentSwitcher).size
            self.post_message(ShellAsked(sandbox, max(area.width, 20), max(area.height, 5)))

    async def opened(self, sandbox: Sandbox, session: ShellSession) -> None:
        """Show a requested session. It replaces an earlier one that has ended."""
        from sandbox_console.tui.widgets.terminal.terminal import (
            TerminalView,  # 120 ms of CPU time, for the emulator's bindings
        )

        ref = sandbox.ref
        self._asking.discard(ref)
        if (old := self._links.pop(ref, None)) is not None:
            await old.view.remove()
        self._count += 1
        view = TerminalView(id=f"terminal-{self._count}")
        await self.query_one(ContentSwitcher).mount(view)
        self._ends.pop(ref, None)
        self._links[ref] = ShellLink(session, view, lambda end, problem: self._ended(ref, end, problem))
        self._publish(ShellOpened(ref))
        typed = self.query_one(ShellNotice).release()
        if self._sandbox is not None and self._sandbox.ref == ref:
            self.show(self._sandbox)
            if self.display:  # otherwise another tab is open, whose keys are not for a guest
                view.focus()
            for one in typed:
                view.on_key(one) if isinstance(one, events.Key) else view.on_paste(one)

    def on_terminal_view_lines_pasted(self, asked: TerminalView.LinesPasted) -> None:
        asked.stop()
        ask_about_paste(self, asked)

    async def on_unmount(self) -> None:
        for link in self._links.values():
            await link.leave()

    def refused(self, sandbox: Sandbox, reason: str) -> None:
        """Show why there is no shell."""
        self._asking.discard(sandbox.ref)
        self.query_one(ShellNotice).release()
        self._ends[sandbox.ref] = reason
        self.show(self._sandbox)

    def _ended(self, ref: SandboxRef, end: Exit | None, problem: str) -> None:
        self._ends[ref] = problem or exit_words(end) or "ended"
        if not self.is_attached:
            return
        self._publish(ShellClosed(ref))
        self.show(self._sandbox)
        if self._links[ref].view.has_focus:
            self._hand_over(self._links[ref].view)

    def _hand_over(self, view: TerminalView) -> None:
        """Return the focus to the screen once the user has noticed that the shell has ended."""
        if not view.has_focus:
            return
        left = QUIET_S - (monotonic() - max(view.typed_at, view.detached_at))
        if left > 0:
            self.set_timer(left, lambda: self._hand_over(view))
        else:
            self.screen.focus_next()

    def _notice(self) -> Content:
        sandbox = self._sandbox
        if sandbox is None:
            return Content("No sandbox is selected.")
        if sandbox.ref in self._asking:
            return Content.assemble((f"Opening a shell in {shown_name(sandbox)}…", ""))
        if (reason := self._ends.get(sandbox.ref)) is not None:
            return plain(f"✕ {reason}", "$text-error")
        if sandbox.status is not Status.RUNNING:
            return Content(f"{shown_name(sandbox)} is {sandbox.status}: a shell needs a running sandbox.")
        key = key_of(self, "shell")
        return Content.assemble(
            (f"No shell is open in {shown_name(sandbox)}. ", ""), *([(key, "bold $primary"), " or "] if key else ()),
            ("Enter", "bold $primary"), (" opens one.", ""),
        )  # fmt: skip

    def _status(self, link: ShellLink | None) -> Content:
        others = self.open_count - (1 if link is not None and not link.ended else 0)
        more = f"   {others} more open (❯_ in the list)" if others else ""
        if link is None or self._sandbox is None:
            return Content(more.strip())
        if link.ended:
            end = clean(self._ends.get(self._sandbox.ref, ""), cap=200)
            again = hint(self, "shell", "opens a new one")
            return Content.assemble((f"■ ended: {end}", "$text-warning"), (f"   {again}{more}", ""))
        without = f", without {clean(', '.join(link.session.without), cap=80)}" if link.session.without else ""
        return Content.assemble(
            ("● shell open", "$text-success"), (", recorded" if link.session.recorded else "", "$text-success"),
            (without, "$text-warning"),
            ("   Ctrl+] leaves it open   Shift+PgUp scrolls", ""), (more, ""),
        )  # fmt: skip
