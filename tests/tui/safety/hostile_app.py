"""Shows hostile text through every widget path there is, then ends. Run with `unsafe` it is a plain Textual app."""

from __future__ import annotations

import sys

from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Provider
from textual.containers import Grid
from textual.content import Content
from textual.widgets import (
    Button,
    Checkbox,
    Collapsible,
    DataTable,
    Footer,
    Header,
    Input,
    Label,
    Link,
    ListItem,
    ListView,
    Log,
    Markdown,
    OptionList,
    Placeholder,
    RadioButton,
    RichLog,
    Select,
    SelectionList,
    Static,
    TabbedContent,
    TabPane,
    Tabs,
    TextArea,
    Tree,
)  # fmt: skip

from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.tui.base.safety import SafeApp
from sandbox_console.tui.widgets.log.log_view import LogView
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import Column
from sandbox_console.tui.widgets.terminal.terminal import TerminalView

PAYLOAD = (
    "\x1b]0;pwn\x07" "\x1b]52;c;cHdu\x07" "\x1b]8;;http://pwn.test/\x1b\\" "\x1bP$qm\x1b\\" "\x1b[21t" "\x1b[?1049l"
    "\x9b21t" "\x9d0;pwn\x9c" "\x90$qm\x9c"
)  # fmt: skip


def table(header="h", cell="c", label=None):
    widget = DataTable(show_row_labels=True)
    widget.add_column(header)
    widget.add_row(cell, label=label)
    return widget


def titled(**titles):
    widget = Static("x")
    widget.styles.border = ("round", "white")
    for name, title in titles.items():
        setattr(widget, name, title)
    return widget


def later(widget, use):
    widget.later = use
    return widget


def tree(text):
    widget = Tree(text)
    widget.root.expand()
    return widget


def leaf(text):
    widget = tree("root")
    widget.root.add_leaf(text)
    return widget


class Tabbed(TabbedContent):
    def __init__(self, title):
        super().__init__()
        self._title = title

    def compose(self):
        with TabbedContent():
            yield TabPane(self._title, Static("body"))


def fleet(text):
    widget = FleetTable([Column("a", "A", 60, 200)])
    return later(widget, lambda: widget.set_rows([Row("k", (text,))]))


def own_log(text):
    widget = LogView()
    return later(widget, lambda: widget.append([LogRecord(1, Stream.STDOUT, text.encode() + b"\n")]))


def own_terminal(text):
    widget = TerminalView()
    # `?1049l` puts the cursor back to the corner; the token is shown once more where nothing overwrites it.
    return later(widget, lambda: widget.feed(f"{text}\r\n{text[:4]}".encode()))


def text_log(widget, content):
    return later(widget, lambda: widget.write(content))


PATHS = {
    "static": Static,
    "static-plain": lambda t: Static(t, markup=False),
    "static-text": lambda t: Static(Text(t)),
    "static-content": lambda t: Static(Content(t)),
    "static-ansi": lambda t: Static(Text.from_ansi(t)),
    "static-link": lambda t: Static(Text(t, style="link http://pwn.test/")),
    "label": Label,
    "log": lambda t: text_log(Log(), t),
    "richlog": lambda t: text_log(RichLog(min_width=40), t),
    "richlog-markup": lambda t: text_log(RichLog(markup=True, min_width=40), t),
    "richlog-text": lambda t: text_log(RichLog(min_width=40), Text(t)),
    "richlog-ansi": lambda t: text_log(RichLog(min_width=40), Text.from_ansi(t)),
    "table-cell": lambda t: table(cell=t),
    "table-cell-text": lambda t: table(cell=Text(t)),
    "table-header": lambda t: table(header=t),
    "table-label": lambda t: table(label=t),
    "button": Button,
    "option": OptionList,
    "tree": tree,
    "leaf": leaf,
    "tab-pane": Tabbed,
    "tabs": Tabs,
    "select-prompt": lambda t: Select([("a", 1)], prompt=t),
    "select-value": lambda t: Select([(t, 1)], value=1),
    "checkbox": Checkbox,
    "radio": RadioButton,
    "collapsible": lambda t: Collapsible(Static("x"), title=t),
    "selection": lambda t: SelectionList((t, 1)),
    "border-title": lambda t: titled(border_title=t),
    "border-subtitle": lambda t: titled(border_subtitle=t),
    "input": Input,
    "placeholder": lambda t: Input(placeholder=t),
    "text-area": TextArea,
    "placeholder-widget": Placeholder,
    "list-item": lambda t: ListView(ListItem(Label(t))),
    "markdown": Markdown,
    "link": Link,
    "own-table": fleet,
    "own-log": own_log,
    "own-terminal": own_terminal,
}
ELSEWHERE = ("title", "binding", "notify", "notify-title", "tooltip", "palette")
NAMES = (*PATHS, *ELSEWHERE)


def token(name):
    return f"P{NAMES.index(name):02}q"


def hostile(name):
    return token(name) + PAYLOAD


class Commands(Provider):
    async def discover(self):
        yield DiscoveryHit(hostile("palette"), lambda: None)

    async def search(self, query):
        yield Hit(1, hostile("palette"), lambda: None)


class Paths:
    CSS = """
    Grid { grid-size: 2; grid-rows: 6; }
    Grid > * { height: 6; width: 1fr; }
    """
    COMMANDS = {Commands}  # noqa: RUF012
    TOOLTIP_DELAY = 0.01

    def compose(self):
        yield Header()
        with Grid():
            for name, build in PATHS.items():
                yield build(hostile(name))
        yield Footer(show_command_palette=False)

    def on_mount(self):
        self.title = hostile("title")
        self.query_one(Header).tooltip = hostile("tooltip")
        for widget in self.query("*"):
            if hasattr(widget, "later"):
                widget.later()

    def action_tell(self):
        self.notify(hostile("notify"), title=hostile("notify-title"))


# The test presses a key when it has seen what the one before shows.
BINDINGS = [
    Binding("f7", "tell", show=False, priority=True),
    Binding("f8", "command_palette", show=False, priority=True),
    ("f9", "nothing", hostile("binding")),
]


class Safe(Paths, SafeApp):
    BINDINGS = BINDINGS


class Unsafe(Paths, App):
    BINDINGS = BINDINGS


if __name__ == "__main__":
    (Unsafe if "unsafe" in sys.argv else Safe)().run()
