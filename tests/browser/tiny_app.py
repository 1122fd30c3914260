"""A small Textual app for the browser tests: it counts keys and shows what it was started with."""

import os
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.events import Resize
from textual.widgets import Footer, Header, Static


class TinyApp(App):
    BINDINGS: ClassVar = [
        ("plus", "add", "Add one"),
        ("c", "copy", "Copy"),
        ("h", "hostile", "Hostile copy"),
        ("q", "quit", "Quit"),
    ]
    ENABLE_COMMAND_PALETTE = False
    TITLE = "tiny"

    def compose(self) -> ComposeResult:
        yield Header()
        yield Static("count 0 ┃ █▓▒░ ╭──╮ 漢字", id="count")
        yield Static(f"actor {os.environ.get('SANDBOX_CONSOLE_ACTOR')}", markup=False)
        yield Static(f"token {os.environ.get('SANDBOX_CONSOLE_TOKEN')} leak {os.environ.get('LEAK_ME')}", markup=False)
        yield Static("size", id="size")
        yield Footer()

    count = 0

    def on_resize(self, event: Resize) -> None:
        self.query_one("#size", Static).update(f"size {event.size.width}x{event.size.height}")

    def action_add(self) -> None:
        self.count += 1
        self.query_one("#count", Static).update(f"count {self.count}")

    def action_copy(self) -> None:
        self.copy_to_clipboard("copied by the operator")

    def action_hostile(self) -> None:
        self._driver.write("x\x1b]52;c;ZXZpbA==\x07")
        self.query_one("#count", Static).update("hostile done")


if __name__ == "__main__":
    TinyApp().run()
