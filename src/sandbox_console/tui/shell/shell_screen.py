"""The page of all shells: tabs, each with its shells side by side or stacked.

While a shell has the focus every key goes to it, except Ctrl+]. After Ctrl+] one key acts on the page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.timer import Timer

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.model.text import clean
from sandbox_console.tui.base.safety import plain
from sandbox_console.tui.dialogs.action_menu import Choice, MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.keys.keymap import hints
from sandbox_console.tui.keys.page_keys import PAGE_KEYS
from sandbox_console.tui.shell.held_keys import QUIET_S
from sandbox_console.tui.shell.open_shells import OpenShells
from sandbox_console.tui.shell.shell import Shell, ShellAsked
from sandbox_console.tui.shell.shell_box import ShellArea, ShellBox
from sandbox_console.tui.shell.shell_choice import ShellChoice
from sandbox_console.tui.shell.tab_layout import neighbour, regions, resized
from sandbox_console.tui.shell.tab_line import TabLine, TabTitle
from sandbox_console.tui.shell.terminal_questions import TerminalQuestions
from sandbox_console.tui.text.formatting import place, shown_name
from sandbox_console.tui.widgets.key_bar import KeyBar

if TYPE_CHECKING:
    from sandbox_console.tui.widgets.terminal.terminal import TerminalView

_DRAW_S = 0.05
"""A guest may change its title and ring its bell thousands of times a second: that is drawn at most this often."""
_NAME_MOST = 60
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class ShellScreen(TerminalQuestions, Screen[None]):
    """Shows `OpenShells`. ``close`` ends a shell, after a question if something runs in it."""

    DEFAULT_CSS = """
    ShellScreen { background: $background; }
    ShellScreen.-broadcast TabLine { background: $error; color: $background; }
    ShellScreen KeyBar { height: 1; }
    """
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = PAGE_KEYS["shells"]

    def __init__(
        self, shells: OpenShells, sandboxes: Callable[[], Sequence[Sandbox]], close: Callable[[Shell], Awaitable[None]],
        choose: Callable[[Sandbox], Awaitable[ShellChoice | None]], wanted: Sequence[Sandbox] = (),
        choice: ShellChoice | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.shells = shells
        self._sandboxes = sandboxes
        self._end_shell = close
        self._wanted, self._choice = wanted, choice
        self._choose = choose
        self._boxes: dict[int, ShellBox] = {}
        self._drawing: Timer | None = None

    def compose(self) -> ComposeResult:
        yield TabLine()
        yield ShellArea(self._places)
        yield KeyBar()

    def on_mount(self) -> None:
        self.shells.listeners.append(self._draw_soon)
        if self._wanted:
            wide = self.app.size.width >= 2 * self.app.size.height
            for shell in self.shells.add_several([*self._wanted], wide=wide):
                shell.choice = self._choice
                self._open(shell)
        self.draw()
        self._type()

    def on_unmount(self) -> None:
        self.shells.listeners.remove(self._draw_soon)
        self.shells.broadcasting = False

    # --- drawing

    def on_resize(self) -> None:
        self._draw_soon()

    def _places(self, size: Size) -> Mapping[int, Region]:
        tab = self.shells.tab
        if tab is None:
            return {}
        room = Region(0, 0, *size)
        return {tab.active: room} if tab.zoomed else regions(tab.node, room)

    def _draw_soon(self) -> None:
        if self._drawing is None and self.is_attached:
            self._drawing = self.set_timer(_DRAW_S, self.draw)

    def draw(self) -> None:
        """Show the current tabs and the states of the shells."""
        self._drawing = None
        if not self.is_attached:
            return
        self._sync_boxes()
        tab, shells = self.shells.tab, self.shells
        if tab is None:
            self.dismiss()
            return
        lone = len(tab.shells) == 1
        again = hints(self, ("shells-type", "opens it again"), ("shells-close", "closes it"))
        for number, box in self._boxes.items():
            box.display = number in tab.shells and (not tab.zoomed or number == tab.active)
            if box.is_mounted:
                box.show(active=number == tab.active, lone=lone, broadcast=shells.broadcasting, again=again)
            else:
                self._draw_soon()
        self.set_class(shells.broadcasting, "-broadcast")
        for box in self._boxes.values():
            box.refresh(layout=True)  # of the children, or the area would keep the places that it knows
        titles = [self._title(at) for at in range(len(shells.tabs))]
        self.query_one(TabLine).show(titles, shells.current, self._state(), danger=shells.broadcasting)
        self._keep_focus()
        for box in self._boxes.values():
            if box.view is not None and box.view.is_mounted and not box.notice.has_focus:
                box.notice.display = False

    def _sync_boxes(self) -> None:
        area, there = self.query_one(ShellArea), {one.number: one for one in self.shells}
        for number in self._boxes.keys() - there.keys():
            self._boxes.pop(number).remove()
        for number in there.keys() - self._boxes.keys():
            box = self._boxes[number] = ShellBox(there[number], self._typed)
            area.mount(box)

    def _title(self, at: int) -> TabTitle:
        tab = self.shells.tabs[at]
        shells = [self.shells[number] for number in tab.shells]
        more = f" +{len(shells) - 1}" if len(shells) > 1 else ""
        name = tab.name or f"{self.shells[tab.active].title}{more}"
        signs = ("♪" if any(one.rang for one in shells) else "") + ("Z" if tab.zoomed else "")
        return TabTitle(name, signs + ("■" if all(not one.is_open and one.reason for one in shells) else ""))

    def _state(self) -> tuple[str, str]:
        shell, marked = self.shells.active, self.shells.marked
        if self.shells.broadcasting:
            return f"BROADCAST to {len(marked)} shells", "bold"
        if shell is None or shell.link is None or not shell.is_open:
            return (f"{len(marked)} marked", "") if marked else ("", "")
        session = shell.link.session
        without = f", without {clean(', '.join(session.without), cap=30)}" if session.without else ""
        kept = f", kept as {session.kept}" if session.kept else ""
        told = f"{kept}{', recorded' if session.recorded else ''}{without}{f'  {len(marked)} marked' if marked else ''}"
        return f"● {place(shell.sandbox)}{told}", "$text-warning" if without else "$text-success"

    # --- the focus

    @property
    def _active_box(self) -> ShellBox | None:
        return self._boxes.get(self.shells.tab.active) if self.shells.tab else None

    def _type(self) -> None:
        """Let the keys go to the active shell."""
        self.call_after_refresh(self._focus_active)

    def _focus_active(self) -> None:
        box = self._active_box
        if box is None or self.app.screen is not self:
            return
        if not box.is_mounted:
            self.set_timer(_DRAW_S, self._focus_active)
            return
        if box.view is not None and box.view.is_mounted and box.shell.is_open:
            self.set_focus(box.view)
        elif box.shell.opening or box.shell.is_open:
            self.set_focus(box.notice)
            self._draw_soon()
        else:
            self.set_focus(None)

    def _keep_focus(self) -> None:
        """Follow a shell that has opened, ended or left the tab under the keys."""
        box, focused = self._active_box, self.focused
        if box is None or focused is None or not box.is_mounted:
            return
        if focused is box.notice and box.view is not None and not box.view.is_mounted:
            self._draw_soon()  # until then the notice holds the keys
        elif focused is box.notice and box.view is not None:
            typed = box.notice.release()
            self.set_focus(box.view)
            for one in typed:
                box.view.on_key(one) if isinstance(one, events.Key) else box.view.on_paste(one)
        elif focused is box.notice and not box.shell.opening:
            box.notice.release()
            self.set_timer(QUIET_S, self._drop_focus)
        elif focused is box.view and not box.shell.is_open and (box.view is None or box.view.copying is None):
            self.set_timer(QUIET_S, self._drop_focus)
        elif box not in focused.ancestors:
            self._focus_active()

    def _drop_focus(self) -> None:
        """Give the keys back to the page, once the user has noticed that the shell is gone."""
        box = self._active_box
        last = max(box.view.typed_at, box.view.detached_at) if box is not None and box.view is not None else 0.0
        if (left := QUIET_S - (monotonic() - last)) > 0:
            self.set_timer(left, self._drop_focus)
            return
        reading = box is not None and box.view is not None and box.view.copying is not None
        gone = box is not None and not box.shell.is_open and not box.shell.opening
        if gone and not reading and self.focused is not None:
            self.set_focus(None)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        box = next((one for one in event.widget.ancestors if isinstance(one, ShellBox)), None)
        if box is not None and box.shell in self.shells:
            self.shells.use(box.shell)

    def on_terminal_view_left(self) -> None:
        self.set_focus(None)

    @on(TabLine.Picked)
    def _picked(self, event: TabLine.Picked) -> None:
        self.action_tab_number(event.index + 1)

    # --- typing

    def _typed(self, shell: Shell, typed: events.Key | str) -> None:
        """Type into the other marked shells what was typed into one of them."""
        if not self.shells.broadcasting or not shell.marked:
            return
        for other in self.shells.marked:
            if other is not shell and other.link is not None:
                emulator = other.link.emulator
                sent = emulator.paste(typed) if isinstance(typed, str) else emulator.key(typed.key, typed.character)
                other.link.send(sent)

    def pasted_into(self, view: TerminalView) -> int:
        """Return how many shells get what is pasted into one."""
        shell = next((box.shell for box in self._boxes.values() if box.view is view), None)
        together = self.shells.broadcasting and shell is not None and shell.marked
        return len(self.shells.marked) if together else 1

    def action_copy_mode(self, search: int) -> None:
        """Copy from the active shell, or search in it."""
        box = self._active_box
        if box is not None and box.view is not None:
            box.view.begin_copy()
            self.set_focus(box.view)
            if search:
                box.view.action_copy_search()

    # --- opening and closing

    def _open(self, shell: Shell) -> None:
        self.draw()
        self.call_after_refresh(self._ask, shell)

    def _ask(self, shell: Shell) -> None:
        box = self._boxes.get(shell.number)
        if box is None or not shell.opening:
            return
        if not box.is_mounted:
            self.set_timer(_DRAW_S, partial(self._ask, shell))
            return
        box.notice.hold()
        self._focus_active()
        area = box.content_size or self.query_one(ShellArea).size  # without a size while another tab is shown
        self.post_message(ShellAsked(shell, max(area.width, 20), max(area.height, 5)))

    def _add(self, sandbox: Sandbox, beside: Shell | None = None, *, across: bool = True) -> None:
        self._open(self.shells.add(sandbox, beside, across=across))

    def action_new(self) -> None:
        """Open another shell in the sandbox of the active one, in a new tab."""
        if (shell := self.shells.active) is not None:
            self._add(shell.sandbox)

    def action_choose(self) -> None:
        """Choose the shell, its user, folder and environment, and open it in a new tab."""
        if (shell := self.shells.active) is not None:
            self.app.run_worker(self._add_chosen(shell.sandbox))

    async def _add_chosen(self, sandbox: Sandbox) -> None:
        choice = await self._choose(sandbox)
        if choice is not None and self.is_attached:
            self._open(self.shells.add(sandbox, choice=choice))

    def action_split(self, across: int) -> None:
        """Open another shell in the sandbox of the active one, beside it or below it."""
        if (shell := self.shells.active) is not None:
            self.shells.tab_of(shell).zoomed = False
            self._add(shell.sandbox, shell, across=bool(across))

    def action_other(self, beside: int = 0) -> None:
        """Choose another sandbox, and open a shell in it."""
        self.app.run_worker(self._pick(beside=bool(beside)))

    async def _pick(self, *, beside: bool) -> None:
        running = {str(one.ref): one for one in self._sandboxes()}
        choices = [
            Choice(ref, shown_name(one), letter, told=place(one))
            for (ref, one), letter in zip(running.items(), [*_LETTERS] + [""] * len(running), strict=False)
        ]
        found = await self.app.push_screen_wait(MenuScreen("Open a shell in", choices))
        if found in running and self.is_attached:
            self._add(running[found], self.shells.active if beside else None)

    def action_close_shell(self) -> None:
        """End the active shell and give up its place. Asks if something runs in it."""
        if (shell := self.shells.active) is not None:
            self.app.run_worker(self._end_and_go_on(shell))

    async def _end_and_go_on(self, shell: Shell) -> None:
        await self._end_shell(shell)
        if self.is_attached:
            self.draw()
            self._type()

    def action_type(self) -> None:
        """Go into the active shell, or open it again if it has ended."""
        shell = self.shells.active
        if shell is None or shell.closing:
            return
        if not shell.is_open and not shell.opening:
            self.shells.reopen(shell)
            self._open(shell)
        self._type()

    # --- moving about

    def _use(self, number: int | None) -> None:
        if number is not None:
            self.shells.use(self.shells[number])
            self.draw()
        self._type()

    def action_step(self, by: int) -> None:
        """Go to the next shell of all tabs, and type into it."""
        every, shell = [one.number for one in self.shells], self.shells.active
        if shell is not None:
            self._use(every[(every.index(shell.number) + by) % len(every)])

    def action_go(self, x: int, y: int) -> None:
        """Go to the shell on a side, and type into it."""
        if (tab := self.shells.tab) is not None:
            tab.zoomed = False
            places = regions(tab.node, Region(0, 0, *self.query_one(ShellArea).size))
            self._use(neighbour(places, tab.active, x, y))

    def action_tab(self, by: int) -> None:
        """Go to the next tab, and type into its shell."""
        tabs = self.shells.tabs
        self._use(tabs[(self.shells.current + by) % len(tabs)].active if tabs else None)

    def action_tab_number(self, number: int) -> None:
        """Go to a tab by its number, and type into its shell."""
        if number <= len(self.shells.tabs):
            self._use(self.shells.tabs[number - 1].active)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - Textual's
        """Ctrl+] leaves a shell while one has the keys, and is sent to it after that."""
        return action != "keys" or self.focused is not None

    def action_keys(self) -> None:
        """Let the keys act on the page. The terminal handles the key itself, so this is only shown in the footer."""
        self.set_focus(None)

    def action_literal(self) -> None:
        """Send Ctrl+] itself to the shell."""
        shell = self.shells.active
        if shell is not None and shell.link is not None:
            shell.link.send(b"\x1d")
        self._type()

    def action_leave(self) -> None:
        """Go back to the list. The shells stay open."""
        self.dismiss()

    # --- arranging

    def action_zoom(self) -> None:
        """Give the active shell the whole tab, or show all of its shells again."""
        if (tab := self.shells.tab) is not None and len(tab.shells) > 1:
            tab.zoomed = not tab.zoomed
            self.draw()
        self._type()

    def action_resize(self, direction: int) -> None:
        """Give the active shell more room, or less."""
        if (tab := self.shells.tab) is not None:
            tab.node = resized(tab.node, tab.active, direction)
            self.draw()

    def action_own_tab(self) -> None:
        """Move the active shell to a tab of its own."""
        if (shell := self.shells.active) is not None:
            self.shells.move_to_own_tab(shell)
            self._use(shell.number)

    def action_join(self) -> None:
        """Move the active shell to the tab before, beside the shells there."""
        if (shell := self.shells.active) is not None:
            self.shells.join_tab_before(shell, across=self.app.size.width >= 2 * self.app.size.height)
            self._use(shell.number)

    def action_rename_tab(self) -> None:
        """Give the tab a name. An empty one takes it away."""
        if (tab := self.shells.tab) is None:
            return

        def named(name: str | None) -> None:
            if name is not None:
                tab.name = clean(name, cap=_NAME_MOST).strip()
                self.draw()

        self.app.push_screen(NameScreen("Name of the tab", "empty: named after its shell", tab.name), named)

    # --- broadcast

    def action_mark(self) -> None:
        """Mark the active shell for a broadcast, or remove its mark."""
        shell = self.shells.active
        if shell is not None and shell.is_open:
            shell.marked = not shell.marked
            self.shells.check_broadcast()
            self.draw()

    def action_mark_all(self) -> None:
        """Mark every open shell, or none if all are marked."""
        every = [one for one in self.shells if one.is_open]
        wanted = not all(one.marked for one in every)
        for one in every:
            one.marked = wanted
        self.shells.check_broadcast()
        self.draw()

    def action_broadcast(self) -> None:
        """Type into all marked shells at once, after one question; or no longer."""
        marked = self.shells.marked
        if self.shells.broadcasting:
            self.shells.broadcasting = False
            self.draw()
        elif len(marked) < 2:
            words = hints(self, ("shells-mark", "marks a shell"), ("shells-mark-all", "marks all"))
            self.notify(f"A broadcast needs two marked shells. {words}.", severity="warning")
        else:
            listed = plain("\n".join(f"{place(one.sandbox)}  {one.title}" for one in marked))
            title = f"Type into {len(marked)} shells at once?"
            body = plain("Every key and every paste in one of them goes to all of them, until the broadcast is ended.")
            self.app.push_screen(
                ConfirmScreen(title, body, "Broadcast", danger=True, listed=listed), partial(self._broadcast, marked)
            )

    def _broadcast(self, marked: Sequence[Shell], agreed: bool | None) -> None:
        if agreed and marked == self.shells.marked:
            self.shells.broadcasting = True
            if (shell := self.shells.active) is not None and not shell.marked:
                self.shells.use(marked[0])
            self.draw()
            self._type()
        elif agreed:
            self.notify("The marked shells have changed; nothing is broadcast.", severity="warning")


class NameScreen(AskScreen):
    """Asks for a name that may be empty. Returns None if it was left."""

    def action_close(self) -> None:
        """Leave the name as it is."""
        self.dismiss(None)
