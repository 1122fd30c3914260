"""Text with ``[@click=...]`` fires nothing, on any widget that parses markup; widgets' own actions still work."""

from __future__ import annotations

import pytest
from rich.text import Text
from textual.app import App
from textual.content import Content
from textual.widgets import (
    Button,
    Checkbox,
    Collapsible,
    DataTable,
    Footer,
    Label,
    Link,
    ListItem,
    ListView,
    Log,
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
    Tree,
)  # fmt: skip

from sandbox_console.tui.base.safety import SafeApp, escaped, plain, plain_text

INJECTED = "[@click=app.pwn]PWNPWNPWN[/]"


def table(header="h", cell="c", label=None):
    widget = DataTable(show_row_labels=True)
    widget.add_column(header)
    widget.add_row(cell, label=label)
    return widget


def titled(name, text):
    widget = Static("x")
    widget.styles.border = ("round", "white")
    setattr(widget, name, text)
    return widget


def tree(root, leaf="leaf"):
    widget = Tree(root)
    widget.root.add_leaf(leaf)
    widget.root.expand()
    return widget


class Pane(TabbedContent):
    def __init__(self, title):
        super().__init__()
        self.pane_title = title

    def compose(self):
        with TabbedContent():
            yield TabPane(self.pane_title, Static("body"))


class Marked(RichLog):
    def __init__(self, text):
        super().__init__(markup=True, min_width=40)
        self.text = text

    def on_mount(self):
        self.call_after_refresh(self.write, self.text)


class Plain(Log):
    def __init__(self, text):
        super().__init__()
        self.text = str(text)

    def on_mount(self):
        self.write(self.text)


class Updated(Static):
    def __init__(self, text):
        super().__init__()
        self.text = text

    def on_mount(self):
        self.update(self.text)


PATHS = {
    "static": Static,
    "updated": Updated,
    "label": Label,
    "log": Plain,
    "richlog": Marked,
    "cell": lambda t: table(cell=t),
    "header": lambda t: table(header=t),
    "row label": lambda t: table(label=t),
    "button": Button,
    "option": OptionList,
    "tree": tree,
    "leaf": lambda t: tree("root", t),
    "pane": Pane,
    "tabs": Tabs,
    "select": lambda t: Select([(t, 1)], value=1),
    "checkbox": Checkbox,
    "radio": RadioButton,
    "collapsible": lambda t: Collapsible(Static("x"), title=t),
    "selection": lambda t: SelectionList((t, 1)),
    "border title": lambda t: titled("border_title", t),
    "border subtitle": lambda t: titled("border_subtitle", t),
    "list item": lambda t: ListView(ListItem(Label(t))),
    "placeholder": Placeholder,
    "link": Link,
}
RICH_ONLY = {"richlog", "cell", "header", "row label", "tree", "leaf"}
STRING_ONLY = {"link", "placeholder", "log"}


class Counting:
    def __init__(self, build, text):
        super().__init__()
        self.build = build
        self.text = text
        self.fired = 0

    def compose(self):
        yield self.build(self.text)

    def action_pwn(self):
        self.fired += 1


class Safe(Counting, SafeApp):
    pass


class Unsafe(Counting, App):
    pass


def cells_that_act(app):
    """Where on screen a style carries an action, one cell a run."""
    found = []
    for y in range(app.size.height):
        before = False
        for x in range(app.size.width):
            acts = "@click" in app.screen.get_style_at(x, y).meta
            if acts and not before:
                found.append((x, y))
            before = acts
    return found


async def clicks(app):
    async with app.run_test(size=(40, 10), notifications=True) as pilot:
        await pilot.pause()
        await pilot.pause()
        targets = cells_that_act(app)
        for target in targets:
            await pilot.click(offset=target)
        await pilot.pause()
        return len(targets), app.fired


async def test_no_injected_click_fires():
    fired = {name: (await clicks(Safe(build, INJECTED)))[1] for name, build in PATHS.items()}
    assert sum(fired.values()) == 0, fired


async def test_in_a_plain_app_the_same_clicks_fire():
    """The control: the text above does reach the screen as something to click."""
    fired = {name: (await clicks(Unsafe(build, INJECTED)))[1] for name, build in PATHS.items()}
    assert len([name for name, count in fired.items() if count]) >= 10, fired


def safely(name, text):
    if name in STRING_ONLY:
        return escaped(text) if name == "placeholder" else text
    return plain_text(text) if name in RICH_ONLY else plain(text)


@pytest.mark.parametrize("text", ["a [/x] b", "[@click=app.pwn]PWN[/]", "\\[[/]"])
async def test_text_that_is_wrapped_is_shown_as_it_is(text):
    """Unbalanced markup crashes widgets that parse it; wrapped, the text stands there letter by letter."""
    for name in PATHS.keys() - {"link", "log", "placeholder"}:
        app = Safe(PATHS[name], safely(name, text))
        async with app.run_test(size=(60, 12)) as pilot:
            await pilot.pause()
            await pilot.pause()
            assert any(text in line for line in screen_lines(app)), (name, screen_lines(app))
            assert cells_that_act(app) == []


def screen_lines(app):
    return ["".join(segment.text for segment in line) for line in app.screen._compositor.render_strips()]


async def test_own_buttons_and_keys_of_the_footer_still_work():
    class Own(SafeApp):
        BINDINGS = [("f5", "go", "Go")]  # noqa: RUF012
        pressed = 0
        went = 0

        def compose(self):
            yield Button("press", id="press")
            yield Footer(show_command_palette=False)

        def on_button_pressed(self):
            self.pressed += 1

        def action_go(self):
            self.went += 1

    app = Own()
    async with app.run_test(size=(40, 10)) as pilot:
        await pilot.pause()
        await pilot.click("#press")
        await pilot.click("FooterKey")
        await pilot.press("f5")
        await pilot.pause()
        assert (app.pressed, app.went) == (1, 2)


async def test_a_notification_is_not_parsed_whatever_is_asked_for():
    app = SafeApp()
    async with app.run_test(size=(60, 12), notifications=True) as pilot:
        app.notify("[@click=app.quit]x[/x] \x1b]0;pwn\x07", title="[/b]\x1b", markup=True)
        await pilot.pause(0.1)
        shown = "\n".join(screen_lines(app))
        assert "[@click=app.quit]x[/x]" in shown
        assert "[/b]␛" in shown
        assert cells_that_act(app) == []


def test_plain_and_escaped_are_exact():
    for text in ("[b]x[/b]", "\\[b]", "[[", "a\\", "[@click=app.quit]x", "[/]", "$x [link=http://x]"):
        assert plain(text).plain == text
        assert plain_text(text).plain == text
        assert not plain_text(text).spans
        parsed = Content.from_markup(escaped(text))
        assert (parsed.plain, parsed.spans) == (text, [])
    assert isinstance(plain_text("x"), Text)
    assert plain("a\nb\x1b[31m").plain == "a\nb␛[31m"
