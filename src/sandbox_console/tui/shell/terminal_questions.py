"""The questions that a terminal on screen asks: before a paste of lines, for a search, and before a link is opened."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from textual.content import Content
from textual.dom import DOMNode

from sandbox_console.model.text import ascii_id, clean
from sandbox_console.tui.dialogs.action_menu import Choice, MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen

if TYPE_CHECKING:
    from sandbox_console.tui.widgets.terminal.terminal import TerminalView

_SHOWN = 200
_ENTER = "A line with its end is pasted. A shell may run it."
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_OPENED = ("http", "https")


class TerminalQuestions(DOMNode):
    """A base of what holds a `TerminalView`."""

    def pasted_into(self, view: TerminalView) -> int:  # noqa: ARG002 - for subclasses
        """Return how many shells get what is pasted into one."""
        return 1

    def on_terminal_view_lines_pasted(self, asked: TerminalView.LinesPasted) -> None:
        """Request confirmation once before pasting several lines, as a shell may run each of them."""
        asked.stop()
        lines, shells = asked.text.splitlines(), self.pasted_into(asked.view)
        words = f"{len(lines)} lines are pasted. A shell may run each of them." if len(lines) > 1 else _ENTER
        title = "Paste into the shell?" if shells == 1 else f"Paste into {shells} shells?"

        def answered(agreed: bool | None) -> None:
            if agreed and asked.view.is_attached:
                asked.view.paste(asked.text)

        shown = Content("\n".join(clean(line, cap=_SHOWN) for line in lines[:_SHOWN]))
        self.app.push_screen(ConfirmScreen(title, Content(words), "Paste", listed=shown), answered)

    def on_copy_keys_search_requested(self, asked: TerminalView.SearchRequested) -> None:
        """Ask what to look for in the scrollback."""
        asked.stop()
        view = asked.view
        before = view.copying.wanted if view.copying is not None else ""

        def answered(wanted: str | None) -> None:
            if wanted and view.is_attached:
                view.search(wanted)

        self.app.push_screen(AskScreen("Search in the shell", "text, upper and lower case alike", before), answered)

    def on_copy_keys_links_requested(self, asked: TerminalView.LinksRequested) -> None:
        """List the addresses, or ask about the only one."""
        asked.stop()
        if not asked.links:
            self.app.notify("There is no link on the screen.", severity="warning")
        elif len(asked.links) == 1:
            self._ask_about_link(asked.links[0])
        else:
            letters = [*_LETTERS, *[""] * len(asked.links)]
            choices = [
                Choice(str(at), clean(urlsplit_host(link) or "?", cap=40), letters[at], detail=clean(link, cap=_SHOWN))
                for at, link in enumerate(asked.links)
            ]
            self.app.push_screen(MenuScreen("Links on the screen", choices), partial(self._picked_link, asked.links))

    def _picked_link(self, links: list[str], picked: str | None) -> None:
        if picked:
            self._ask_about_link(links[int(picked)])

    def _ask_about_link(self, link: str) -> None:
        """Show the whole address, which is hostile, before anything is done with it."""
        host = urlsplit_host(link)
        openable = "" if urlsplit_scheme(link) in _OPENED else "Only http and https addresses are opened."
        openable = openable or ("" if self.app.is_web or _has_desktop() else "There is no desktop to open it on.")
        words = Content.assemble(
            "Host: ", (ascii_id(host) if host else "none", "bold $text-warning"), "\nThe sandbox wrote this address.",
            f"\n{openable}" if openable else "",
        )  # fmt: skip
        verb = "Copy" if openable else "Open"

        def answered(agreed: bool | None) -> None:
            if agreed and openable:
                self.app.copy_to_clipboard(link)
                self.app.notify("Copied the address")
            elif agreed:
                self.app.open_url(link)

        title = f"{verb} this address?"
        question = ConfirmScreen(title, words, verb, command="", listed=Content(clean(link, cap=4096)), danger=True)
        self.app.push_screen(question, answered)


def urlsplit_host(link: str) -> str:
    """Return the host of an address, or an empty string."""
    try:
        return urlsplit(link).hostname or ""
    except ValueError:
        return ""


def urlsplit_scheme(link: str) -> str:
    """Return the scheme of an address, or an empty string."""
    try:
        return urlsplit(link).scheme
    except ValueError:
        return ""


def _has_desktop() -> bool:
    """Return whether a browser would open in a window, and not in this terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
