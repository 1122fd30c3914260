"""The selected sandbox in detail: a line that identifies it, the tabs, and the contents of the open tab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual import getters
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import ContentSwitcher, Static

from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.service import Console
from sandbox_console.tui.app_base import BaseApp
from sandbox_console.tui.base.static_text import set_text
from sandbox_console.tui.detail.containers import ChosenContainers
from sandbox_console.tui.detail.exit_reason import WhyBar
from sandbox_console.tui.detail.lazy_tabs import make_pane
from sandbox_console.tui.detail.tab_bar import TABS, TabBar
from sandbox_console.tui.fleet.header import justified
from sandbox_console.tui.logs.logs_tab import LogsPane
from sandbox_console.tui.shell.shell_tab import ShellPane
from sandbox_console.tui.state.fleet_state import FleetState, News, TabState
from sandbox_console.tui.text.formatting import (
    STATUS,
    STYLES,
    sandbox_host,
    short_id,
    shown_name,
    status_reason,
    status_reason_style,
)
from sandbox_console.tui.text.port_text import openings

if TYPE_CHECKING:
    from sandbox_console.tui.detail.lazy_tabs import Pane


_INSIDE = ("files", "stats")
"""The tabs that show one of several containers, beside those of logs and shells."""


class Detail(Vertical):
    """Shows one sandbox. Only the open tab is active, and a tab is created when it is first opened."""

    DEFAULT_CSS = """
    Detail { height: 1fr; }
    Detail > #identity { height: 1; padding: 0 1; background: $panel; text-wrap: nowrap; text-overflow: ellipsis; }
    Detail > ContentSwitcher { height: 1fr; }
    """

    console_app = getters.app(BaseApp)

    def __init__(self, console: Console, publish: Callable[[News], None], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._service = console
        self._publish = publish
        self._sandbox: Sandbox | None = None
        self._state = FleetState()
        self._on_screen = False
        self.going_in = False
        """Whether the tab gets the focus as soon as it is mounted."""
        self._panes: dict[str, Pane] = {}
        self._containers = ChosenContainers()

    def compose(self) -> ComposeResult:
        yield Static(id="identity")
        yield WhyBar(self._service)
        yield TabBar()
        with ContentSwitcher(initial="logs"):
            yield LogsPane(self._service, id="logs")
            yield ShellPane(self._publish, id="shell")

    @property
    def tab(self) -> str:
        """The open tab."""
        return self.query_one(TabBar).current

    @property
    def logs(self) -> LogsPane:
        """The pane of the logs."""
        return self.query_one(LogsPane)

    @property
    def shells(self) -> ShellPane:
        """The pane of the shells."""
        return self.query_one(ShellPane)

    def show(self, sandbox: Sandbox | None, state: FleetState, *, on_screen: bool) -> None:
        """Show the current state of a sandbox."""
        self._sandbox, self._state, self._on_screen = sandbox, state, on_screen
        set_text(self.query_one("#identity", Static), self._identity(), fixed=True)
        self._refresh_tab()
        self._hide_of_another()

    def _hide_of_another(self) -> None:
        """Hide the previous sandbox if none is selected, as on the head of a group."""
        switcher, logs = self.query_one(ContentSwitcher), self.query_one(LogsPane)
        shown = self._sandbox is not None or (self.tab == "logs" and logs.of_others)
        if switcher.visible is not shown:
            switcher.visible = shown

    def on_resize(self) -> None:
        set_text(self.query_one("#identity", Static), self._identity(), fixed=True)

    def _identity(self) -> Content:
        forwards = self._state.forwards.get(self._sandbox.ref, ()) if self._sandbox else ()
        container = self._containers.of(self._sandbox) if self._sandbox else ""
        return identity(self._sandbox, self.size.width - 2, forwards, container)

    def within(self, sandbox: Sandbox) -> Sandbox:
        """Return a sandbox whose ref names the container that was chosen of it."""
        return self._containers.within(sandbox)

    def use(self, sandbox: Sandbox, container: str) -> None:
        """Show the log, the shell and the files of a container."""
        self._containers.choose(sandbox, container)
        self.show(self._sandbox, self._state, on_screen=self._on_screen)

    def pick(self, tab: str) -> None:
        """Open another tab."""
        self.query_one(TabBar).current = tab
        switcher = self.query_one(ContentSwitcher)
        if tab not in self._panes and not switcher.query_children(f"#{tab}"):
            self._panes[tab] = make_pane(tab, self._service, self.console_app.agreed)
            switcher.mount(self._panes[tab])
        switcher.current = tab
        self._refresh_tab()
        self._hide_of_another()

    def step(self, by: int) -> None:
        """Open the next tab, or the previous one."""
        ids = [tab.id for tab in TABS]
        self.pick(ids[(ids.index(self.tab) + by) % len(ids)])

    def leave(self) -> None:
        """Leave the focus to the list: a pane that is mounted later does not take it."""
        self.going_in = False

    def focus_soon(self) -> None:
        """Focus the contents of the tab once they are mounted."""
        self.going_in = True
        self.call_after_refresh(self._focus_tab)

    def _focus_tab(self) -> None:
        if not self.going_in:
            return
        if self.tab == "shell":
            current = self.shells.query_one(ContentSwitcher).visible_content
            if current is not None:
                self.screen.set_focus(current)
            self.going_in = False
        elif (pane := self._panes.get(self.tab)) is not None and not pane.is_mounted:
            pane.call_later(self._focus_tab)
        else:
            self.screen.set_focus(self.query_one(next(tab.focus for tab in TABS if tab.id == self.tab)))
            self.going_in = False

    def _refresh_tab(self) -> None:
        def active(tab: str) -> bool:
            return self._on_screen and self.tab == tab

        logs = self.query_one(LogsPane)
        inside = self.within(self._sandbox) if self._sandbox is not None else None
        logs.show(inside, active=active("logs"))
        logs.renew(self._state.sandboxes)
        logs.note_live(self._is_there)  # afterwards, as the sandbox that is left may be gone itself
        version = sum(1 for acted in self._state.acted), self._state.acted[-1:]
        for tab, pane in self._panes.items():
            if pane.is_mounted:
                pane.show(TabState(inside if tab in _INSIDE else self._sandbox, active(tab), version))
            elif active(tab):
                pane.call_later(self._refresh_tab)
        bar = self.query_one(WhyBar)
        bar.set_class(self.tab == "stats", "-whole")  # the graphs can scroll, but the bar cannot
        bar.show(self._sandbox if self._on_screen else None, version)
        if active("shell"):
            self.shells.show(inside)

    def _is_there(self, ref: SandboxRef) -> bool:
        return ref.whole in self._state.sandboxes or self._state.connecting

    def on_tab_bar_picked(self, event: TabBar.Picked) -> None:
        event.stop()
        self.pick(event.tab)
        self.focus_soon()


def identity(sandbox: Sandbox | None, width: int, forwards: Sequence[str] = (), container: str = "") -> Content:
    """Return the name, container, state, exit, ports and forwards on the left, and the id and place on the right."""
    if sandbox is None:
        return Content("No sandbox is selected.")
    glyph, style = STATUS[sandbox.status]
    inside = [("  ▸ ", "$dim"), (clean(container, cap=63), "$primary")] if container else []
    left = [(shown_name(sandbox), "bold $primary"), *inside, ("  ", ""), (f"{glyph} {sandbox.status}", STYLES[style])]
    if reason := status_reason(sandbox):
        left += [("  ", ""), (reason, STYLES[status_reason_style(sandbox)])]
    if sandbox.status.live and (ports := openings(sandbox)):
        left += [("  ", ""), (" ".join(map(str, ports[:4])), "$text-accent")]
    if forwards:
        left += [("  ", ""), (f"⇄ {' '.join(forwards[:4])}", "$text-success")]
    marks = [] if sandbox.managed else [("◇ not ours  ", "$text-warning")]
    return Content.assemble(
        *justified(left, [*marks, (f"{sandbox_host(sandbox)}  {short_id(sandbox)}", "$dim")], width)
    )
