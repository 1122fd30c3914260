"""The Textual driver inside the app: a WebDriver that can repaint, passes copies on and ends with its server."""

from __future__ import annotations

import base64
import binascii
import re

from textual._xterm_parser import XTermParser
from textual.drivers import web_driver
from textual.drivers.web_driver import WebDriver
from textual.events import AppBlur, AppFocus
from textual.messages import ExitApp

from sandbox_console.model.pastes import GuardedParser

MOST_COPIED = 1024 * 1024
"""The most characters of one copy that are passed to the browser."""

_COPY = re.compile(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07")
_ANY_OSC_52 = re.compile(r"(?:\x1b\]|\x9d)52;[^\x07\x1b\x9c]*+(?:\x07|\x1b\\|\x9c)?")

# The driver creates its parser itself, using this name.
vars(web_driver)["XTermParser"] = lambda debug=False: GuardedParser(XTermParser(debug))


class BrowserDriver(WebDriver):
    """The driver. Textual's own copy is one whole write, so it differs from an OSC 52 inside a painted line."""

    passes_files = True
    tells_return = True
    """Whether a browser that returns is always told of by ``forget_screen``, as its screen is empty."""
    _has_focus = False

    def write(self, data: str) -> None:
        if "52;" in data:
            if own := _COPY.fullmatch(data):
                self._copy(own[1])
                return
            data = _ANY_OSC_52.sub("", data)
        super().write(data.encode("utf-8", "replace").decode("utf-8"))

    def _request_terminal_sync_mode_support(self) -> None:
        """Do not ask for synchronized output. A frame is one message, which xterm.js draws at once in any case.

        At the end of a synchronized one it draws every row again, which takes Chromium 20 ms a key.
        """

    def start_application_mode(self) -> None:
        super().start_application_mode()
        # Textual begins without the focus, also if the page has said by now that it has it.
        self._app.call_later(lambda: self._app.post_message(AppFocus() if self._has_focus else AppBlur()))

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set() and not self._loop.is_closed():
            # Standard input has ended without a quit message, so the server is gone.
            self._loop.call_soon_threadsafe(self._app.post_message, ExitApp())

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        if packet_type in ("focus", "blur"):
            self._has_focus = packet_type == "focus"
        if packet_type == "repaint":
            self._loop.call_soon_threadsafe(self._repaint, payload.get("away_ms"))
        elif packet_type == "uploaded":
            if (take := getattr(self._app, "take_upload", None)) is not None:
                self._loop.call_soon_threadsafe(self._app.call_later, take, str(payload["path"]))
        elif packet_type == "theme":
            if (switch := getattr(self._app, "action_light", None)) is not None:
                self._loop.call_soon_threadsafe(self._app.call_later, switch)
        else:
            super().on_meta(packet_type, payload)

    def pick_files(self) -> None:
        """Let the page ask for files to upload."""
        self.write_meta({"type": "pick_files"})

    def tell_free_drag(self) -> None:
        """Let the page select text with the drag that begins now."""
        self.write_meta({"type": "free_drag"})

    def tell_faults(self, count: int) -> None:
        """Let the page's title and icon say how many faults there are."""
        self.write_meta({"type": "faults", "count": count})

    def _repaint(self, away_ms: object) -> None:
        self.write("\x1b[?1049h")
        self._enable_mouse_support()
        self.write("\x1b[?25l")
        self._enable_bracketed_paste()
        if (forget := getattr(self._app, "forget_screen", None)) is not None:
            forget()
        self._app.refresh(layout=True)
        if isinstance(away_ms, int) and (back := getattr(self._app, "came_back", None)) is not None:
            self._app.call_later(back, away_ms / 1000)

    def _copy(self, encoded: str) -> None:
        try:
            text = base64.b64decode(encoded, validate=True).decode("utf-8", "replace")
        except binascii.Error:
            return
        if text.strip():  # an empty copy would only empty the clipboard
            self.write_meta({"type": "copy", "text": "\n".join(map(str.rstrip, text[:MOST_COPIED].split("\n")))})


class SharedDriver(BrowserDriver):
    """The driver behind textual-web, which has no message for a copy and would print its text instead."""

    passes_files = False
    tells_return = False

    def _copy(self, encoded: str) -> None:
        del encoded

    def tell_free_drag(self) -> None:
        pass

    def tell_faults(self, count: int) -> None:
        del count
