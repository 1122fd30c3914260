"""100,000 hostile texts through every renderer of a sandbox's words: no crash, nothing that acts on a terminal.

The renderers are driven directly: what they give is what a widget draws, before the last filter takes anything out.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from rich.style import Style

from sandbox_console.logs.store import LineStore
from sandbox_console.model.capability import Capabilities
from sandbox_console.model.guest import FileInfo, FileKind, GuestEvent, GuestProcess
from sandbox_console.model.log import LogGap, LogRecord, Stream
from sandbox_console.model.sandbox import Exit, Fact, Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.text import strip_unsafe
from sandbox_console.model.verdict import verdict
from sandbox_console.service.config import ViewOptions
from sandbox_console.tui.base.safety import plain, plain_text
from sandbox_console.tui.detail import events_tab as events
from sandbox_console.tui.detail import processes_tab as processes
from sandbox_console.tui.detail.detail_pane import identity
from sandbox_console.tui.detail.exit_reason import why_words
from sandbox_console.tui.detail.inspect_tree import fill
from sandbox_console.tui.detail.spec_tab import spec_words
from sandbox_console.tui.files import file_text as file_words
from sandbox_console.tui.fleet.arrangement import Hidden, ListOptions
from sandbox_console.tui.fleet.fleet_rows import LOOKS, paint
from sandbox_console.tui.fleet.groups import GroupKey, GroupRow
from sandbox_console.tui.fleet.header import view_line
from sandbox_console.tui.main.command_runner import views_words
from sandbox_console.tui.main.compare import compare_words
from sandbox_console.tui.state.fleet_state import Denial, FleetState
from sandbox_console.tui.widgets.log.log_lines import ShownLines
from sandbox_console.tui.widgets.log.log_page import DisplayOptions, LogPage

INPUTS = 100_000
_BITS = [
    "\x1b", "\x1b[", "\x1b]0;pwn\x07", "\x1b]52;c;cHdu\x07", "\x1b]8;;http://pwn.test/\x1b\\", "\x1bP$qm\x1b\\", "\x1b[2J",
    "\x1b[?1049l", "\x1b[21t", "\x1b[31m", "\x1b[38;2;1;2;3m", "\x1b[8m", "\x1b[5m", "\x1b[0", "\x1b[" + "9;" * 40 + "m",
    "\x1b_Gf=1;AAAA\x1b\\", "\x9b21t", "\x9d0;pwn\x9c", "\x90$qm\x9c", "\x00", "\x07", "\x08", "\x7f", "\r", "\t", "\x0b",
    "\u202e", "\u2066", "\u200b", "\u200d", "\ufeff", "\u00ad", "\u3164", "\U000e0041", "\ud800", "\ufe0f", "\u2028",
    "[@click=app.quit]x[/]", "[/x]", "[bold", "\\[", "]", "{", "}", '{"msg":"', '","level":"error"}', "=", "a", "Z", "0", " ",
    "\u0430\u0501min", "\u4e2d\u6587", "\U0001f469\u200d\U0001f4bb", "e\u0301", "\u0300" * 20, "%s", "ERROR", "$(rm)", "../",
    "\uffff", "\U0010ffff", "A" * 300,
]  # fmt: skip


def texts(count, seed):
    chance = random.Random(seed)
    for _ in range(count):
        text = "".join(chance.choices(_BITS, k=chance.randrange(1, 9)))
        if chance.random() < 0.3:
            text += "".join(map(chr, chance.choices(range(0x2FF), k=chance.randrange(1, 12))))
        yield text


def assert_quiet(shown, text):
    for line in shown.split("\n"):
        assert strip_unsafe(line.replace("\t", " ")) == line.replace("\t", " "), ascii(text)


def sandbox_of(text):
    spec = SandboxSpec(text, text, (text,), {text: text}, labels={text: text}, egress=(text,), secrets=(text,))
    return Sandbox(
        SandboxRef("fake", text, text), text, Status.EXITED, text, exit=Exit(1, reason=text), labels={text: text},
        maker=text, spec=spec, effective=(Fact(text, text, text, enforced=False),), detail=text, managed=False,
        finished_at=1.0,
    )  # fmt: skip


def as_logs(found):
    store = LineStore()
    for at, text in enumerate(found):
        data = text.encode("utf-8", "surrogatepass")
        store.append([LogRecord(at, Stream.STDERR if at % 2 else Stream.STDOUT, data.replace(b"\n", b"") + b"\n")])
        if at % 50 == 0:
            store.append([LogGap(at, text, 1)])
    page = LogPage(ShownLines(store), DisplayOptions(timestamps=True, names=found[:3]))
    page.style_of, page.width = lambda _: Style.null(), 100
    for wrap in (False, True):
        page.look.wrap = wrap
        page.forget()
        for _, strip in page.down(0, len(found) * 40):
            assert strip.cell_length == 100
            yield strip.text
            assert not any(segment.control or (segment.style and segment.style.link) for segment in strip)


def as_names(found):
    for text in found:
        sandbox = sandbox_of(text)
        state = FleetState(denied={sandbox.ref: Denial(2, text, 1.0)})
        for cell in paint(sandbox, state, LOOKS, 9.0)[0]:
            yield cell if isinstance(cell, str) else "\n".join(cell)
        head = GroupRow(GroupKey(f"label:{text}", text), False, ((text, 1),))
        yield "\n".join(map(str, head.paint()[0]))
        yield view_line(ListOptions(group=f"label:{text}"), Hidden(), 1, text).plain
        yield views_words(SimpleNamespace(names=[text], get=lambda _, text=text: ViewOptions(filter=text))).plain
        yield identity(sandbox, 80).plain


def as_specs(found):
    for text in found:
        sandbox = sandbox_of(text)
        yield spec_words(sandbox, Capabilities(), 80).plain
        yield compare_words(sandbox, sandbox_of("b")).plain
        yield why_words(verdict(sandbox, ())).plain


def as_inside(found):
    for text in found:
        yield "\n".join(
            map(
                str,
                file_words.file_row(FileInfo(text, FileKind.LINK, mode=0o7777, modified_at=1e300, target=text)).cells,
            )
        )
        yield "\n".join(map(str, processes._row(GuestProcess(1, user=text, state=text, command=text), 3).cells))
        yield "\n".join(map(str, events._row(0, GuestEvent(1.0, text, text, {text: text})).cells))
        yield file_words.file_words(text.encode("utf-8", "surrogatepass"), more=True).plain
        assert file_words.local_name(text).isascii()


def as_errors(found):
    for text in found:
        yield plain(text).plain
        yield plain_text(text).plain


@pytest.mark.parametrize(
    ("render", "share"),
    [(as_logs, 0.55), (as_names, 0.1), (as_specs, 0.05), (as_inside, 0.1), (as_errors, 0.2)],
    ids=["logs", "names", "specs", "inside", "errors"],
)
def test_nothing_that_acts_gets_through(render, share):
    found = list(texts(int(INPUTS * share), seed=f"{render.__name__}"))
    for start in range(0, len(found), 5000):
        part = found[start : start + 5000]
        shown = list(render(part))
        assert shown
        for text in shown:
            assert_quiet(text, text)


async def test_a_tree_of_hostile_words_shows_them_letter_by_letter():
    from textual.app import App
    from textual.widgets import Tree

    class Shown(App):
        def compose(self):
            yield Tree("")

    app = Shown()
    async with app.run_test(size=(100, 30)):
        tree = app.query_one(Tree)
        for text in texts(300, seed="tree"):
            fill(tree, {text: {text: [text, {text: None}]}})
            for node in tree.root.children:
                assert_quiet(node.label.plain, text)
                assert not any("@" in str(span.style) for span in node.label.spans)
