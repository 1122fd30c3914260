"""The programs that are captured, with what is typed into them. Each step is a checkpoint."""

from __future__ import annotations

from msgspec import Struct

ESC = "\x1b"


class Step(Struct):
    """Keys, or a new size, and the checkpoint when the program is quiet again.

    A key that types no character is Textual's name in angle brackets, and is sent as the app would send it.
    ``until`` presses Return, with a checkpoint each time, until the screen has that text.
    """

    name: str
    keys: str = ""
    size: tuple[int, int] | None = None
    until: str = ""


class Program(Struct):
    """A program of Debian's, run in a sandbox with the files of record.py."""

    name: str
    argv: tuple[str, ...]
    steps: tuple[Step, ...]
    quiet_s: float = 0.5
    size: tuple[int, int] = (80, 24)


def typed(*steps: tuple[str, str]) -> tuple[Step, ...]:
    """Steps of keys."""
    return tuple(Step(name, keys) for name, keys in steps)


VIM = Program("vim", ("vim", "-u", "NONE", "-N", "-n", "-c", "syntax on", "-c", "set ruler showcmd", "poem.py"), (
    *typed(
        ("opened", ""), ("numbers", ":set number list\r"), ("half a page", "\x04"), ("search", ":set hlsearch\r/def\r"),
        ("next", "n"), ("inserted", "Onew line 漢字 é" + ESC), ("visual block", "\x168l4j"),
        ("deleted", "d"), ("undone", "uu"), ("split", ":split\r"), ("vertical", ":vsplit notes.txt\r"),
        ("other window", "\x17w\x17w"), ("scrolled", "\x05\x05\x05"), ("diff", ":only\r:vert diffsplit other.py\r"),
    ),
    Step("wider", size=(120, 40)), Step("narrow", size=(50, 15)), Step("as before", size=(80, 24)),
    *typed(("left", ":qa!\r")),
))  # fmt: skip

LESS = Program("less", ("less", "-R", "-S", "long.txt"), (
    *typed(
        ("opened", ""), ("page", " "), ("back", "b"), ("to the right", "<right>"), ("left", "<left>"), ("search", "/needle\r"),
        ("next", "n"), ("end", "G"), ("line", "40g"), ("numbers", "-N\r\r"), ("wrapped", "-S\r"), ("upwards", "k" * 5),
        ("help", "h"), ("help left", "q"),
    ),
    Step("narrow", size=(60, 20)), Step("wider", size=(100, 30)),
    *typed(("left", "q")),
))  # fmt: skip

NANO = Program("nano", ("nano", "--syntax=python", "poem.py"), (
    *typed(
        ("opened", ""), ("typed", "print('hello')\r\tindented 漢\r"), ("marked", "\x1ea" + "<down>" * 4),
        ("cut", "\x0b"), ("pasted", "\x15\x15"), ("search", "\x17return\r"), ("replace", "\x1creturn\rgive\r"),
        ("all", "A"), ("help", "\x07"), ("help left", "\x18"), ("where", "\x03"),
    ),
    Step("wider", size=(110, 35)), Step("as before", size=(80, 24)),
    *typed(("save?", "\x18"), ("left", "n")),
))  # fmt: skip

MC = Program("mc", ("mc", "-u", "--nosubshell", ".", "."), (
    *typed(
        ("opened", ""), ("down", "<down>" * 3), ("marked", "<insert><insert>"), ("menu", "<f9>"), ("menu open", "<enter>"),
        ("menu next", "<right>"), ("menu closed", ESC + ESC), ("view", "<home>" + "<down>" * 6 + "<f3>"), ("hex", "<f4>"),
        ("view left", "<f10>"), ("copy", "<f5>"), ("copy left", ESC + ESC), ("other panel", "\t<down>"), ("help", "<f1>"),
        ("help left", "<f10>"), ("edit", "<home>" + "<down>" * 6 + "<f4>"), ("edit left", "\x18"),
    ),
    Step("wider", size=(120, 36)), Step("as before", size=(80, 24)),
    *typed(("quit?", "<f10>"), ("left", "\r")),
))  # fmt: skip

HTOP = Program("htop", ("htop", "--delay=30"), (
    *typed(
        ("opened", ""), ("tree", "<f5>"), ("sorted", "<f6>"), ("sort picked", "<down>" + "\r"), ("filter", "<f4>" + "sleep"),
        ("filter left", ESC), ("marked", " "), ("setup", "<f2>"), ("setup meters", "<down>" * 2), ("setup left", "<f10>"), ("help", "<f1>"),
        ("help left", "q"), ("signals", "<f9>"),
    ),
    Step("wider", size=(120, 36)),
    *typed(("left", ESC + "q")),
), quiet_s=0.4)  # fmt: skip

TMUX = Program("tmux", ("tmux", "-f", "/dev/null", "-u", "new", "-s", "work", "env PS1='$ ' sh"), (
    *typed(
        ("opened", ""), ("output", "ls -l --time-style=+ ; seq 3\r"), ("split", '\x02"'), ("beside", "\x02%"),
        ("typed", "PS1='% '; printf '\\033[1;31mred \\033[44mblue\\033[0m\\n'\r"), ("other pane", "\x02o"),
        ("flood", "seq 200\r"), ("copy mode", "\x02["), ("copy up", "<pageup>"), ("copy left", "q"), ("zoomed", "\x02z"),
        ("zoom left", "\x02z"), ("next layout", "\x02 "), ("tiled", "\x02\x1b5"), ("clock", "\x02t"), ("clock left", "q"),
        ("window", "\x02c"), ("list", "\x02w"), ("list left", "q"), ("prompt", "\x02:display-panes"), ("panes", "\x15\x03"),
        ("back", "\x02p"),
    ),
    Step("wider", size=(120, 40)), Step("narrow", size=(60, 18)),
    *typed(("detached", "\x02d")),
))  # fmt: skip

PYTHON = Program("python", ("python3", "-q"), typed(
    ("prompt", ""), ("sum", "1 + 2\r"), ("function", "def f(n):\r    return n * '-=' + '漢字'\r\rf(9)\r"),
    ("history", "<up>" + "<up>"), ("history left", "\x15"), ("traceback", "1 / 0\r"), ("completed", "import sys; sys.ver\t"),
    ("choices", "\t\t"), ("edited", "\x15'abcdefghij'" + "<left>" * 5 + "XYZ\x01\x05\r"),
    ("long line", "'" + "wrapped " * 15 + "'"), ("in it", "\x01" + "<right>" * 30 + "here "), ("run", "\r"),
    ("reverse search", "\x12def"), ("search left", "\x07"), ("pager", "help(len)\r"), ("pager left", "q"),
    ("many lines", "print(*range(400))\r"), ("left", "exit()\r"),
))  # fmt: skip

BASH = Program("bash", ("bash", "--norc", "--noprofile", "-i"), (
    *typed(
        ("prompt", "PS1='\\[\\e[1;32m\\]user@box\\[\\e[0m\\]:\\w\\$ '\r"), ("colours", "./colours.sh\r"),
        ("true colour", "./truecolour.sh\r"), ("looks", "./looks.sh\r"), ("wide", "clear; cat wide.txt\r"),
        ("ls", "clear; ls -la --color --time-style=+ / | head -20\r"), ("wrapped", "clear; seq -s ' ' 300\r"),
    ),
    Step("narrow", size=(47, 20)), Step("wider", size=(101, 30)), Step("as before", size=(80, 24)),
    *typed(
        ("alternate", "printf '\\033[?1049h\\033[H'; cat wide.txt; read x\r"), ("normal again", "\rprintf '\\033[?1049l'\r"),
        ("region", "clear; printf '\\033[5;10r\\033[5H'; seq 50; printf '\\033[r\\033[15H'\r"),
        ("tabs", "clear; printf 'a\\tb\\tc\\n1234567\\t8\\n'; tabs 4; printf 'a\\tb\\tc\\n'; tabs 8\r"),
        ("graphics", "clear; printf '\\033(0lqqk\\nx  x\\nmqqj\\033(B\\n'\r"), ("edit", "clear\recho one two three" + "<left>" * 8 + "\x17"),
        ("edit run", "\x0c\r"),
    ),
))  # fmt: skip

MENU = "Choose test type:"
VTTEST = Program("vttest", ("vttest",), (
    Step("menu"),
    Step("cursor", "1\r", until=MENU), Step("features", "2\r", until=MENU),
    Step("sets menu", "3\r"), Step("sets", "8\r", until="Menu 3:"), Step("sets left", "0\r"),
    Step("double", "4\r", until=MENU),
    Step("keyboard menu", "5\r"), Step("keyboard left", "0\r"),
    Step("reports menu", "6\r"), Step("reports attributes", "3\r", until="Menu 6:"), Step("reports left", "0\r"),
    Step("vt52", "7\r", until=MENU), Step("insert", "8\r", until=MENU),
    Step("bugs menu", "9\r"), Step("bugs left", "0\r"),
    Step("reset menu", "10\r"), Step("reset left", "0\r"),
    Step("others menu", "11\r"), Step("others left", "0\r"),
), quiet_s=1.2)  # fmt: skip

PROGRAMS = (VIM, LESS, NANO, MC, HTOP, TMUX, PYTHON, BASH, VTTEST)
