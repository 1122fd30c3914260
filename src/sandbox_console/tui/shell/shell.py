"""One shell of the app, and one tab of the shells page."""

from __future__ import annotations

from textual.message import Message

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.tui.shell.shell_choice import ShellChoice
from sandbox_console.tui.shell.tab_layout import Node, leaves
from sandbox_console.tui.shell.terminal_link import ShellLink
from sandbox_console.tui.text.formatting import shown_name

TITLE_MOST = 40
"""Cells of a title that a guest has set."""


class Shell:
    """A shell that was asked for: it is being opened, open, refused or ended.

    ``choice`` is how it is opened; None means as last time in its sandbox. ``marked`` says that a broadcast types into
    it, ``rang`` that its bell rang while nobody looked.
    """

    def __init__(self, number: int, sandbox: Sandbox, choice: ShellChoice | None = None) -> None:
        self.number = number
        self.choice = choice
        self.sandbox = sandbox
        self.link: ShellLink | None = None
        self.reason = ""
        self.marked = self.rang = self.closing = False
        self.bells, self.guest_title = 0, ""

    @property
    def is_open(self) -> bool:
        """Whether it takes keys."""
        return self.link is not None and not self.link.ended

    @property
    def opening(self) -> bool:
        """Whether it has been asked for, and neither opened nor refused."""
        return self.link is None and not self.reason

    @property
    def title(self) -> str:
        """The sandbox's name and the title that the guest has set, cleaned."""
        guest_title = clean(self.guest_title, cap=TITLE_MOST).strip()
        return " · ".join(filter(None, (shown_name(self.sandbox), guest_title)))

    @property
    def looked_at(self) -> bool:
        """Whether a person types into it now."""
        return self.link is not None and self.link.view is not None and self.link.view.has_focus


class ShellTab:
    """Shells that are shown together. ``active`` is the one that has, or had last, the keys."""

    def __init__(self, node: Node, active: int) -> None:
        self.name = ""
        self.node = node
        self.active = active
        self.zoomed = False

    @property
    def shells(self) -> list[int]:
        """The numbers of its shells, in order."""
        return list(leaves(self.node))


class ShellRequested(Message):
    """The user requests that a shell is opened in this size."""

    def __init__(self, shell: Shell, cols: int, rows: int) -> None:
        super().__init__()
        self.shell = shell
        self.cols = cols
        self.rows = rows
