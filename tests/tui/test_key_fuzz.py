"""Random keys, chords, mouse reports, pastes and sizes at full speed over every screen, on a real terminal.

Every round opens another screen, sends its events without a pause, and then comes back to the list, which must answer.
The sandboxes are the test's own, so whatever the keys do to them is done to nobody else. ``FUZZED_SEEDS`` (words; one
app for each, at the same time) and ``FUZZED_EVENTS`` (of all together) choose other runs; a seed always sends the same
events.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import select
import signal
import string
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
from tests.cli.conftest import CONFIG, Cli
from tests.cli.terminal import Terminal
from tests.support.require import requires

from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

SEEDS = os.environ.get("FUZZED_SEEDS", "1 2").split()
EVENTS = int(os.environ.get("FUZZED_EVENTS", "100000"))
ROUND = 250
HUNG_S = 180.0
USUAL = (120, 40)
QUIT = b"\x1b[24~"  # F12, as q alone would end most rounds
NEVER = "words that are on no screen"
ESCAPE = b"\x1b[27u"  # by its number, which no key behind it can make another one of
LEAVE_SHELL = b"\x1d"

pytestmark = [requires("bubblewrap"), pytest.mark.slow, pytest.mark.timeout(1800 + EVENTS // 10)]

OPENERS = [
    b"", b"\r", b"l", b"s", *(b"%d" % tab for tab in range(10)), b"n", b"e", b"m", b"x", b"r", b"\x0b", b"\x04", b"i", b"u",
    b"h", b"P", b"V", b"b", b"v", b"?", b",", b":", b"/", b"\x10", b"\x05", b"\x12", b"O", b"U", b"a", b"Y", b"*x", b"*L",
    b"l/", b"l&", b"8\ra", b"f", b"|", b"J", b"=", b"\x07", b"p",
]  # fmt: skip
"""Keys that open each screen, tab, question and line from the list."""

CSI = [b"\x1b[%s" % word for word in (b"A", b"B", b"C", b"D", b"H", b"F", b"Z", b"2~", b"3~", b"5~", b"6~")]
FUNCTION = [b"\x1bOP", b"\x1bOQ", b"\x1bOR", b"\x1bOS", b"\x1b[15~", b"\x1b[17~", b"\x1b[20~"]
CONTROL = [bytes([code]) for code in range(1, 27) if chr(code + 96) not in "cqz"]
CHORDS = [
    *(b"\x1b[1;%d%c" % (mods, key) for mods in (2, 3, 5, 6) for key in b"ABCDHF"),
    *(b"\x1b[%d;5u" % ord(key) for key in "cz\\] "),  # as bytes these would be signals once the app has left
    *(b"\x1b" + bytes([key]) for key in b"abx1\r"),
    b"\x00", b"\x1d", b"\x1f", b"\x7f",
]  # fmt: skip
PASTED = [
    "",
    "web",
    "a" * 3000,
    "one\ntwo\r\nthree\t",
    "漢字 e\u0301 \u202e x",
    "[b]q[/b] [@click=quit]x[/]",
    "status:run /((",
]


def event(rng: random.Random, size: tuple[int, int]) -> bytes:
    """One key, chord, mouse report or paste as a terminal sends it."""
    match rng.choices(["letter", "move", "control", "chord", "mouse", "paste", "quit"], [40, 22, 8, 8, 20, 1.5, 0.1])[
        0
    ]:
        case "letter":
            return rng.choice(string.printable[:95] + "\r\r\r\t").encode()
        case "move":
            return rng.choice([*CSI, *CSI, *FUNCTION, b"\r", b"\t", ESCAPE, ESCAPE, b" "])
        case "control":
            return rng.choice(CONTROL)
        case "chord":
            return rng.choice(CHORDS)
        case "mouse":
            return mouse(rng, size)
        case "paste":
            return b"\x1b[200~" + rng.choice(PASTED).encode() + b"\x1b[201~"
        case _:
            return b"\x11"


def mouse(rng: random.Random, size: tuple[int, int]) -> bytes:
    """A click, a double click, a drag, the wheel or a move; a few lie outside."""
    x, y = rng.randrange(1, size[0] + 3), rng.randrange(1, size[1] + 3)
    mods = rng.choice([0, 0, 0, 4, 8, 16])
    match rng.choice(["click", "click", "double", "right", "drag", "wheel", "move"]):
        case "click":
            return click(mods, x, y)
        case "double":
            return click(mods, x, y) * 2
        case "right":
            return click(2 + mods, x, y)
        case "drag":
            return b"\x1b[<0;%d;%dM\x1b[<32;%d;%dM\x1b[<0;%d;%dm" % (x, y, 1 + y, 1 + x % 20, 1 + y, 1 + x % 20)
        case "wheel":
            return b"\x1b[<%d;%d;%dM" % (64 + mods + rng.randrange(4), x, y)
        case _:
            return b"\x1b[<35;%d;%dM" % (x, y)


def click(button: int, x: int, y: int) -> bytes:
    return b"\x1b[<%d;%d;%dM\x1b[<%d;%d;%dm" % (button, x, y, button, x, y)


class Fuzzed(Terminal):
    """The app on a terminal whose picture is kept."""

    def __init__(self, cli: Cli) -> None:
        super().__init__(cli, "--backend", "bubblewrap")
        self.picture = GhosttyEmulator(80, 24)
        self.dims = (80, 24)
        self.tail = b""
        self.resize(USUAL)

    def resize(self, dims: tuple[int, int]) -> None:
        self.dims = dims
        self.size(*dims)
        self.picture.resize(*dims)

    def read(self, seconds: float) -> bool:
        """Read what there is, waiting at most so long; whether there was something."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        data = os.read(self.fd, 1 << 16)
        self.tail = (self.tail + data)[-20_000:]
        self.picture.feed(data)
        return True

    def send(self, data: bytes) -> None:
        """Write as fast as it takes it, reading meanwhile, as a terminal does."""
        deadline = time.monotonic() + HUNG_S
        while data and self.process.poll() is None:
            reads, writes, _ = select.select([self.fd], [self.fd], [], 1.0)
            if reads:
                self.read(0)
            if writes:
                data = data[os.write(self.fd, data[:256]) :]
            assert time.monotonic() < deadline, f"it takes no more keys:\n{self.shown()}"

    def shown(self) -> str:
        self.picture.refresh()
        return self.picture.text()

    def comes(self, *words: str, within: float) -> bool:
        """Whether all words are on screen, now or soon."""
        deadline = time.monotonic() + within
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.05)
            while self.read(0):
                pass
            shown = self.shown()
            if all(word in shown for word in words):
                return True
        return False

    def answers(self, marker: str) -> bool:
        """Come back to the list from wherever it is, and have a word typed in its filter; False where it has quit."""
        self.resize(USUAL)
        deadline = time.monotonic() + HUNG_S
        while self.process.poll() is None:
            self.send(LEAVE_SHELL + (ESCAPE * 3 + b"y") * 2 + ESCAPE * 6)  # y: a form that was filled in asks
            self.send(b"/" + marker.encode())
            if self.comes(marker, "Enter keeps", within=5):
                self.send(ESCAPE * 2)
                return True
            assert time.monotonic() < deadline, f"it does not answer:\n{self.shown()}\n{self._stacks()}"
        return False

    def _stacks(self) -> str:
        self.process.send_signal(signal.SIGABRT)  # Python's fault handler prints them
        deadline = time.monotonic() + 10
        while self.process.poll() is None and time.monotonic() < deadline:
            self.read(0.1)
        while self.read(0):
            pass
        return self.tail[-6000:].decode(errors="replace")

    def end(self) -> None:
        """It was quit: the code is 0 and the terminal is as it was."""
        deadline = time.monotonic() + HUNG_S
        while self.process.poll() is None:
            self.read(0.05)
            assert time.monotonic() < deadline, f"it does not quit:\n{self.shown()}"
        while self.read(0):
            pass
        told = self.tail.decode(errors="replace")
        assert self.process.returncode == 0, told[-6000:]
        last = told.split("\x1b[?1049l")[-1]
        assert "\x1b[?1049l" in told, told[-6000:]
        assert "\x1b[?25h" in told, told[-6000:]
        assert "Traceback" not in last, last
        assert self.attributes() == self.before

    def quit(self) -> None:
        """Quit by its key, and a yes where shells or actions are open; again where a busy app has dropped the key."""
        deadline = time.monotonic() + HUNG_S
        while self.process.poll() is None and time.monotonic() < deadline:
            self.send(QUIT)
            if self.comes("Quit?", within=5):
                self.send(b"y")
                self.comes(NEVER, within=5)
        self.end()

    def over(self) -> None:
        """End it whatever it does; a second time does nothing."""
        if self.fd >= 0:
            self.__exit__(None, None, None)
            self.fd = -1


WRITERS = {
    "lines": "i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done",
    "json": """while :; do echo '{"level":"warn","deep":{"a":[1,2]}}'; printf '\\033[31mred\\033[0m\\n'; sleep 0.2; done""",
    "ended": "seq 2000; exit 3",
}
"""Sandboxes by name, and what they run: lines, JSON with colours, and one that has ended."""


def run(cli: Cli, *words: str) -> bytes:
    """One command as a process: several threads do this at once."""
    out, _ = cli.start(*words).communicate(timeout=HUNG_S)
    return out


def furnish(cli: Cli) -> None:
    """Have the sandboxes as they are at the start; what the keys made is removed."""
    there = {one["name"]: one for one in map(json.loads, run(cli, "ls", "--all", "--json").splitlines())}
    for name, script in WRITERS.items():
        if name not in there:
            run(cli, "create", name, "--image", "host", "--yes", "--", "sh", "-c", script)
        elif name != "ended":
            run(cli, "start", name)
    if others := [one["ref"] for name, one in there.items() if name not in WRITERS]:
        run(cli, "rm", "--force", "--yes", *others)


def opened(cli: Cli) -> Fuzzed:
    """The app on these sandboxes, which answers."""
    furnish(cli)
    app = Fuzzed(cli)
    assert app.answers("ready"), app.tail.decode(errors="replace")
    return app


def play(cli: Cli, seed: str, events: int) -> int:
    """Send so many events of a seed, in rounds; how many they were."""
    rng, sent, app = random.Random(seed), 0, opened(cli)
    openers: list[bytes] = []
    try:
        while sent < events:
            openers = openers or rng.sample(OPENERS, len(OPENERS))
            app.send(openers[-1])
            sent += one_round(app, rng)
            if not app.answers(f"here{sent}"):  # the keys have quit it
                app.end()
                app.over()
                app = opened(cli)
            openers.pop()
        app.quit()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, event {sent}, after {openers[-1:]}: {error}") from error
    finally:
        app.over()
    return sent


def one_round(app: Fuzzed, rng: random.Random) -> int:
    """Events at full speed, in a window that changes its size; how many were sent while it ran."""
    turns = {rng.randrange(ROUND) for _ in range(rng.choice([0, 2, 8]))}
    for turn in range(ROUND):
        if turn in turns:
            app.resize(rng.choice([(rng.randrange(3, 201), rng.randrange(2, 61)), (3, 2), (80, 24)]))
        app.send(event(rng, app.dims))
        if app.process.poll() is not None:
            return turn
    return ROUND


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Cli]]:
    """A state for each seed; what is in them is removed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    found = [Cli(tmp_path / f"home-{at}") for at in range(len(SEEDS))]
    for cli in found:
        cli.home.mkdir()
        (cli.home / "config.toml").write_text(f'{CONFIG}[tui.keys]\nquit = "f12"\n')
    yield found
    for cli in found:
        names = [json.loads(line)["ref"] for line in run(cli, "ls", "--all", "--json").splitlines()]
        run(cli, "rm", "--force", "--yes", *names)


def test_a_burst_that_asks_and_answers_crashes_nothing(homes: list[Cli]) -> None:
    app = opened(homes[0])
    try:
        for number in range(30):
            app.send(b"xr\r")
            assert app.answers(f"burst{number}"), app.tail.decode(errors="replace")
        app.quit()
    finally:
        app.over()


def test_random_keys_at_full_speed_leave_the_app_answering(
    homes: list[Cli], record_property: Callable[[str, object], None]
) -> None:
    with ProcessPoolExecutor(len(SEEDS), multiprocessing.get_context("fork")) as pool:
        sent = list(pool.map(play, homes, SEEDS, [EVENTS // len(SEEDS)] * len(SEEDS)))
    record_property("events", sum(sent))
