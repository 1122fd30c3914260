"""The terminal view on a real PTY: real programs, real keys, what they draw."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import time

import pytest
from textual.app import App
from textual.binding import Binding
from textual.events import MouseMove, MouseScrollUp, Paste
from textual.widgets import Input

from sandbox_console.model.sandbox import Exit
from sandbox_console.tui.shell import terminal_link
from sandbox_console.tui.shell.terminal_link import ShellLink
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator
from sandbox_console.tui.widgets.terminal.terminal import TerminalView


class Guest:
    """A program on a PTY, connected to a view."""

    def __init__(self, view, *argv):
        self.view = view
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execvpe(
                argv[0], argv, {"TERM": "xterm-256color", "PATH": os.environ["PATH"], "PS1": "$ ", "LC_ALL": "C.UTF-8"}
            )
        os.set_blocking(self.fd, False)
        self.received = 0
        self.ended = asyncio.Event()
        view.attach(self.write, self.resize)
        asyncio.get_running_loop().add_reader(self.fd, self.readable)

    def write(self, data):
        os.write(self.fd, data)

    def resize(self, cols, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def readable(self):
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self.fd)
            self.ended.set()
            return
        self.received += len(data)
        self.view.feed(data)

    def close(self):
        asyncio.get_running_loop().remove_reader(self.fd)
        os.close(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Screen(App):
    BINDINGS = [  # noqa: RUF012
        Binding("ctrl+p", "stolen", priority=True),
        Binding("ctrl+q", "stolen", priority=True),
        Binding("ctrl+c", "stolen", priority=True),
        Binding("tab", "stolen", priority=True),
        Binding("escape", "stolen", priority=True),
        Binding("x", "stolen"),
    ]
    stolen = 0
    left = 0

    def compose(self):
        yield TerminalView()
        yield Input()

    def action_stolen(self):
        self.stolen += 1

    def on_terminal_view_left(self):
        self.left += 1
        self.query_one(Input).focus()


async def until(pilot, view, what, limit_s=10.0, note=""):
    """Wait for text (or a check of the text) on screen."""
    check = what if callable(what) else lambda text: what in text
    deadline = time.monotonic() + limit_s
    while not check(text := view.screen_text()):
        assert time.monotonic() < deadline, f"not seen: {note or what}\n{text}"
        await pilot.pause(0.02)
    return text


async def type_in(pilot, text):
    for character in text:
        await pilot.press({"\n": "enter", " ": "space"}.get(character, character))


@pytest.fixture
async def shell():
    """A function that opens a program in a view; all are ended with the test."""
    app = Screen()
    guests = []
    async with app.run_test(size=(80, 28)) as pilot:
        view = app.query_one(TerminalView)
        view.focus()
        await pilot.pause()

        def open_guest(*argv):
            guests.append(Guest(view, *(argv or ("/bin/sh",))))
            return guests[-1]

        yield pilot, view, open_guest
        for guest in guests:
            guest.close()


async def test_the_guest_has_the_views_size_and_follows_it(shell):
    pilot, view, open_guest = shell
    open_guest()
    await until(pilot, view, "$")
    await type_in(pilot, "stty size\n")
    await until(pilot, view, "25 80")
    await pilot.resize_terminal(100, 33)
    await pilot.pause()
    await type_in(pilot, "stty size\n")
    await until(pilot, view, "30 100")


async def test_vi_edits_a_file(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a long path would make vi ask for a key first
    pilot, view, open_guest = shell
    path = tmp_path / "note"
    open_guest("vi", "-u", "NONE", path.name)
    await until(pilot, view, lambda text: text.count("\n~") > 15)
    assert view.emulator.alternate_screen
    await type_in(pilot, "ihello ")
    await pilot.press("h", "é", "漢", "escape")
    await type_in(pilot, "yyp")
    await until(pilot, view, lambda text: text.count("hello hé漢") == 2)
    await pilot.press("up", "0", "x", "colon", "w", "q", "enter")
    deadline = time.monotonic() + 10
    while not path.exists() or path.read_text().count("\n") < 2:
        assert time.monotonic() < deadline
        await pilot.pause(0.02)
    assert path.read_text() == "ello hé漢\nhello hé漢\n"


async def test_less_pages_and_the_wheel_moves_it(shell, tmp_path):
    pilot, view, open_guest = shell
    path = tmp_path / "long"
    path.write_text("".join(f"line {at}\n" for at in range(1, 501)))
    open_guest("less", str(path))
    await until(pilot, view, "line 24")
    await pilot.press("pagedown")
    await until(pilot, view, "line 48")
    await pilot.press("G")
    await until(pilot, view, "line 500")
    view.post_message(MouseScrollUp(view, 3, 3, 0, -1, 0, False, False, False))
    await until(pilot, view, lambda text: "line 500" not in text and "line 497" in text)
    await pilot.press("home")
    await pilot.press("g", "down")
    await until(pilot, view, lambda text: text.startswith("line 2\n"))


async def test_top_draws_and_redraws(shell):
    pilot, view, open_guest = shell
    open_guest("top", "-d", "0.3")
    await until(pilot, view, lambda text: "load average" in text and "PID USER" in text)
    await pilot.press("q")


async def test_ctrl_c_stops_a_flood(shell):
    pilot, view, open_guest = shell
    guest = open_guest()
    await until(pilot, view, "$")
    await type_in(pilot, "yes\n")
    deadline = time.monotonic() + 60
    while guest.received < 10_000_000:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    await pilot.press("ctrl+c")
    await until(pilot, view, lambda text: text.rstrip().endswith("$"), 10)
    await type_in(pilot, "echo al''ive\n")
    await until(pilot, view, "\nalive")
    assert pilot.app.stolen == 0


class Talk:
    """A session that writes these chunks and ends."""

    recorded, without, answers_itself = False, (), False

    def __init__(self, *chunks):
        self.chunks = [*chunks]

    async def read(self):
        return self.chunks.pop(0) if self.chunks else b""

    async def wait(self):
        return Exit(0)

    async def close(self):
        pass


async def test_a_link_reads_to_the_end_and_lets_others_run():
    app = Screen()
    async with app.run_test(size=(40, 12)):
        view = app.query_one(TerminalView)
        ended = asyncio.Event()
        turns = 0
        link = ShellLink(Talk(b"a" * 300_000 + b"\r\n", b"the end"), view.emulator, lambda *_: ended.set())
        link.show_in(view)
        while not ended.is_set():
            turns += 1
            await asyncio.sleep(0)
        assert "the end" in view.screen_text()
        assert turns >= 5, "a chunk of 300 kB is shown in pieces"


async def test_a_link_goes_on_without_a_widget():
    emulator = GhosttyEmulator(20, 3)
    ended = asyncio.Event()
    ShellLink(Talk(b"unseen"), emulator, lambda *_: ended.set())
    await ended.wait()
    emulator.refresh()
    assert emulator.text().startswith("unseen")


async def test_sizes_agree_from_the_start(shell):
    """A program that thinks of another size than the emulator's leaves a scroll region behind and draws askew."""
    pilot, view, open_guest = shell
    for size in ((90, 30), (60, 20)):
        await pilot.resize_terminal(*size)
        await pilot.pause()
    open_guest("vi", "-u", "NONE", "/etc/passwd")
    await until(pilot, view, lambda text: text.startswith("root:"))
    await pilot.resize_terminal(100, 40)
    await until(pilot, view, lambda text: text.startswith("root:") and text.count("\n") == 36)


KEYS = {
    "up": "^[[A", "down": "^[[B", "right": "^[[C", "left": "^[[D", "home": "^[[H", "end": "^[[F", "pageup": "^[[5~",
    "pagedown": "^[[6~", "insert": "^[[2~", "delete": "^[[3~", "f1": "^[OP", "f2": "^[OQ", "f3": "^[OR", "f4": "^[OS",
    "f5": "^[[15~", "f6": "^[[17~", "f7": "^[[18~", "f8": "^[[19~", "f9": "^[[20~", "f10": "^[[21~", "f11": "^[[23~",
    "f12": "^[[24~", "tab": "^I", "shift+tab": "^[[Z", "escape": "^[", "backspace": "^?", "ctrl+a": "^A", "ctrl+z": "^Z",
    "ctrl+p": "^P", "ctrl+q": "^Q", "ctrl+c": "^C", "ctrl+backslash": "^\\", "ctrl+underscore": "^_",
    "ctrl+at": "^@", "ctrl+left": "^[[1;5D", "shift+up": "^[[1;2A", "alt+x": "^[x", "alt+enter": "^[^M", "enter": "^M",
    "ctrl+up": "^[[1;5A", "ctrl+delete": "^[[3;5~", "alt+backspace": "^[^?", "a": "a", "A": "A", "é": "M-CM-)",
    "slash": "/", "left_square_bracket": "[", "tilde": "~", "alt+A": "^[A", "ctrl+space": "^@", "shift+f5": "^[[15;2~",
}  # fmt: skip


async def test_every_key_reaches_the_guest_as_xterm_sends_it(shell):
    pilot, view, open_guest = shell
    open_guest("/bin/sh", "-c", "stty raw -echo; printf ready; exec cat -vT")
    await until(pilot, view, "ready")
    for key, expected in KEYS.items():
        view.emulator.feed(b"\x1b[2J\x1b[H")
        await pilot.press(key)
        await until(pilot, view, lambda text, seen=expected: text.split("\n")[0] == seen, 5, f"{key} {expected}")
    assert pilot.app.stolen == 0


async def test_application_modes_change_the_keys():
    app = Screen()
    async with app.run_test() as pilot:
        view = app.query_one(TerminalView)
        view.focus()
        sent = []
        view.attach(sent.append, lambda cols, rows: None)
        view.feed(b"\x1b[?1h")
        await pilot.press("up")
        view.paste("a\x1b[201~\nrm -rf /\x03")
        await pilot.pause()
        view.feed(b"\x1b[?2004h")
        view.post_message(Paste("b\x1b[201~c\x9b201~\x1b[20\x1b[201~1~d"))
        await pilot.pause()
    assert sent == [b"\x1bOA", b"a\rrm -rf /", b"\x1b[200~bc[201~d\x1b[201~"]


async def test_only_the_leave_key_leaves():
    app = Screen()
    async with app.run_test() as pilot:
        view = app.query_one(TerminalView)
        view.focus()
        await pilot.press("tab", "escape", "ctrl+q", "x")
        assert (app.stolen, app.left, app.focused) == (0, 0, view)
        await pilot.press("ctrl+right_square_bracket")
        await pilot.pause()
        assert (app.left, app.focused) == (1, app.query_one(Input))
        await pilot.press("ctrl+p")
        assert app.stolen == 1, "elsewhere the app's keys are its own"


async def test_the_mouse_goes_to_a_guest_that_asks():
    app = Screen()
    async with app.run_test() as pilot:
        view = app.query_one(TerminalView)
        sent = []
        view.attach(sent.append, lambda cols, rows: None)
        await pilot.click(view, offset=(3, 2))
        assert sent == []
        view.feed(b"\x1b[?1000h\x1b[?1006h")
        await pilot.click(view, offset=(3, 2))
        await pilot.click(view, offset=(5, 4), shift=True)
    assert b"".join(sent) == b"\x1b[<0;4;3M\x1b[<0;4;3m"


async def test_scrollback_and_back():
    app = Screen()
    async with app.run_test(size=(40, 13)) as pilot:
        view = app.query_one(TerminalView)
        view.focus()
        view.feed(b"".join(b"line %d\r\n" % at for at in range(1, 101)))
        assert "line 100" in view.screen_text()
        await pilot.press("shift+pageup")
        assert "line 92\n" not in view.screen_text()
        assert "line 91" in view.screen_text()
        await pilot.press("a")
        assert "line 100" in view.screen_text()


async def test_colours_wide_characters_and_the_cursor_are_drawn():
    app = Screen()
    async with app.run_test(size=(20, 8)) as pilot:
        view = app.query_one(TerminalView)
        view.focus()
        view.feed(
            "\x1b[38;2;1;2;3;48;5;196;1mX\x1b[0m漢👨\u200d👩e\u0301🇩🇪❤\ufe0f|\u3164\u202e\x1b[7mR\x1b[0m".encode()
        )
        view.screen_text()
        await pilot.pause()
        strip = view.render_line(0)
        first = next(iter(strip))
        assert (first.text, first.style.color.triplet, first.style.bold) == ("X", (1, 2, 3), True)
        assert strip.cell_length == 20
        assert "\u202e" not in strip.text
        assert "\u200d" not in strip.text
        assert "\u3164" not in strip.text
        assert any(segment.style.reverse and segment.text == "R" for segment in strip)
        assert all(view.render_line(y).cell_length == 20 for y in range(5))


async def test_what_would_act_on_a_terminal_only_answers_the_guest():
    app = Screen()
    async with app.run_test() as pilot:
        view = app.query_one(TerminalView)
        sent = []
        view.attach(sent.append, lambda cols, rows: None)
        title, clipboard = app.title, app.clipboard
        view.feed(
            b"\x1b]0;pwn\x07\x1b]52;c;cHdu\x07\x1b[21t\x1b]52;c;?\x07\x1b]9;note\x07\x1b_Gi=1,f=24,s=1,v=1;AAAA\x1b\\"
        )
        await pilot.pause()
        assert (app.title, app.clipboard) == (title, clipboard)
        assert not re.search(b"pwn|cHdu", b"".join(sent))
        view.feed(b"\x1b[6n")
        assert sent[-1] == b"\x1b[1;1R"


REFUSED = {
    "sixel": b"\x1bPq#0;2;0;0;0~-\x1b\\",
    "kitty, inline": b"\x1b_Ga=T,f=24,s=1,v=1;QUFB\x1b\\",
    "kitty, a file of the viewer": b"\x1b_Ga=T,t=f;L2V0Yy9wYXNzd2Q=\x1b\\",
    "kitty, shared memory": b"\x1b_Ga=T,t=s,f=24,s=1,v=1;L3g=\x1b\\",
    "kitty, whether it can": b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;QUFB\x1b\\",
    "iTerm": b"\x1b]1337;File=inline=1;size=3:QUFB\x07",
    "iTerm, in parts": b"\x1b]1337;MultipartFile=inline=1\x07\x1b]1337;FilePart=QUFB\x07\x1b]1337;FileEnd\x07",
    "iTerm, the clipboard": b"\x1b]1337;Copy=:ZXZpbA==\x07",
    "ReGIS": b"\x1bPpS(E)\x1b\\",
    "whether graphics can be set": b"\x1b[?1;1;0S",
    "the clipboard, written": b"\x1b]52;c;ZXZpbA==\x07\x1b]52;p;ZXZpbA==\x1b\\",
    "the clipboard, read": b"\x1b]52;c;?\x07",
    "the title, read": b"\x1b]2;evil\x07\x1b[21t\x1b[20t",
}


@pytest.mark.parametrize("case", REFUSED)
async def test_images_clipboards_and_titles_are_refused_quietly(case):
    """Nothing of it is drawn, answered, copied or done, and the text after it is where it belongs."""
    app = Screen()
    async with app.run_test(size=(40, 12)) as pilot:
        view = app.query_one(TerminalView)
        sent = []
        view.attach(sent.append, lambda *_: None)
        clipboard = app.clipboard
        view.feed(b"before" + REFUSED[case] + b"after\x1b[c")
        await until(pilot, view, "beforeafter")
        assert view.screen_text().strip() == "beforeafter"
        assert app.clipboard == clipboard
        [attributes] = [one for one in sent if one]
        assert attributes.startswith(b"\x1b[?")
        assert b"4" not in attributes.strip(b"\x1b[?c").split(b";"), "4 claims sixel"


async def drag(pilot, view, x, y, *, shift=False):
    view.post_message(MouseMove(view, x, y, 0, 0, 1, shift, False, False))  # pilot's hover has no button held
    await pilot.pause()


async def test_what_the_mouse_selects_is_copied_also_while_the_guest_writes():
    app = Screen()
    async with app.run_test(size=(40, 12)) as pilot:
        view = app.query_one(TerminalView)
        view.feed(b"first line   \r\nsecond line")
        await pilot.pause()
        await pilot.mouse_down(view, offset=(6, 0))
        await drag(pilot, view, 3, 1)
        assert view.copying is not None
        assert view.render_line(0).crop(7, 8)._segments[0].style.bgcolor is not None
        view.feed(b"\x1b[2J\x1b[Hgone")
        await drag(pilot, view, 5, 1)
        await pilot.mouse_up(view, offset=(5, 1))
        assert app.clipboard == "line\nsecond"
        await until(pilot, view, "gone")


async def test_a_guest_that_wants_the_mouse_gets_it_except_with_shift():
    app = Screen()
    async with app.run_test(size=(40, 12)) as pilot:
        view = app.query_one(TerminalView)
        sent = []
        view.attach(sent.append, lambda *_: None)
        view.feed(b"\x1b[?1002h\x1b[?1006hsome text")
        await pilot.pause()
        await pilot.mouse_down(view, offset=(0, 0))
        await pilot.mouse_up(view, offset=(0, 0))
        assert b"\x1b[<0;1;1M" in sent
        await pilot.mouse_down(view, offset=(0, 0), shift=True)
        await drag(pilot, view, 3, 0, shift=True)
        await pilot.mouse_up(view, offset=(3, 0), shift=True)
        assert app.clipboard == "some"


@pytest.mark.parametrize(("times", "text"), [(2, "second"), (3, "second line")])
async def test_double_and_triple_clicks_copy_a_word_and_a_line(times, text):
    app = Screen()
    async with app.run_test(size=(40, 12)) as pilot:
        view = app.query_one(TerminalView)
        view.feed(b"first line\r\nsecond line   ")
        await pilot.pause()
        await pilot.click(view, offset=(2, 1), times=times)
        await pilot.pause()
        assert app.clipboard == text
        assert view.copying is None


class Frozen(Talk):
    """A shell that takes nothing until it is let go."""

    def __init__(self):
        super().__init__()
        self.goes = asyncio.Event()
        self.taken = b""

    async def read(self):
        await asyncio.Event().wait()

    async def resize(self, cols, rows):
        pass

    async def write(self, data):
        await self.goes.wait()
        self.taken += data


async def test_what_is_typed_into_a_frozen_shell_waits_in_order_and_too_much_is_said_to_be_dropped():
    app = Screen()
    async with app.run_test(size=(40, 12), notifications=True) as pilot:
        session = Frozen()
        link = ShellLink(session, app.query_one(TerminalView).emulator, lambda *_: None)
        link.show_in(app.query_one(TerminalView))
        for number in range(200):
            link.send(b"%04d" % number * 4096)
        kept = 0
        session.goes.set()
        while not session.taken or link._waiting:
            await pilot.pause()
        kept = len(session.taken) // (4 * 4096)
        assert kept == terminal_link.TYPED_MOST // (4 * 4096)
        assert session.taken == b"".join(b"%04d" % number * 4096 for number in range(kept))
        assert [one.message for one in app._notifications] == [
            "The shell takes nothing, and 1024 KiB of keys wait for it. More are dropped."
        ]
        link.send(b"later")
        while not session.taken.endswith(b"later"):
            await pilot.pause()
        await link.leave()
