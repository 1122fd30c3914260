"""One machine's part of the tests: run there, once more from where it was if the machine dies."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.microvm.machine import DEAD, Machine
from tests.support.microvm.parts import MachineError

ROOT = Path(__file__).parents[3]
NOTHING = 5
"""pytest's exit code where no test was left to run."""

# Loading every plugin of the environment takes 20 s in the machine; these are what the tests use.
_PLUGINS = tuple(
    word
    for name in ("pytest_asyncio.plugin", "pytest_timeout", "tests.support.microvm.shard", "no:cacheprovider")
    for word in ("-p", name)
)
OPTIONS = ("--tb=native", "-v", "--timeout=400", "--durations=12", "-o", "junit_family=xunit1")
"""For every place."""
PYTEST = (sys.executable, "-m", "pytest", *_PLUGINS, *OPTIONS)
ENVIRONMENT = {
    "REQUIRE": "microsandbox",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTHONDONTWRITEBYTECODE": "1",  # it would go to the scratch disk, and be gone
}
"""In a machine."""
_ENDED = re.compile(r"^(tests/\S+::.+?)(?: <- \S+)? (PASSED|FAILED|SKIPPED|XFAIL|XPASS|ERROR)\b")


class Part:
    """Part ``number`` of ``of``. ``tests`` are pytest's arguments."""

    def __init__(self, name: str, number: int, of: int, tests: Sequence[str]) -> None:
        self.machine = Machine(f"{name}-{number}")
        self.words: dict[str, str] = {}
        self._label, self._shard, self._tests = f"[{number}] " if of > 1 else "", f"{number}/{of}", list(tests)
        self._line = {b"o": b"", b"e": b""}
        self._stopping = threading.Event()

    def run(self, deadline: float) -> int:
        """Boot and run; gives pytest's exit code, or DEAD. Raises MachineError."""
        code = DEAD
        for attempt in (1, 2):
            self._boot()
            code = self._pytest(self._left(), deadline)
            if code != DEAD or self._stopping.is_set() or time.monotonic() > deadline:
                break
            console = self.machine.console()[-1500:]
            sys.stderr.write(f"{self._label}the machine died (attempt {attempt}); the end of its console:\n{console}\n")
        return 0 if code == NOTHING else code

    def again(self, names: Sequence[str], deadline: float) -> int:
        """Run these once more, in the machine as it is, or in another one if it is dead."""
        if not self.machine.alive():
            self._boot()
        self._shard, self._tests = "0/1", list(names)
        for name in names:
            self.words.pop(name, None)
        return self._pytest([], deadline)

    def failed(self) -> list[str]:
        """The tests that failed, by their names."""
        return sorted(name for name, word in self.words.items() if word in ("FAILED", "ERROR", "XPASS"))

    def end(self) -> None:
        """End the machine, whatever it does."""
        self._stopping.set()
        self.machine.remove()

    def _boot(self) -> None:
        try:
            self.machine.up()
        except MachineError as error:
            sys.stderr.write(f"{self._label}{error}\n")
            self.machine.up()

    def _left(self) -> list[str]:
        return [word for name in sorted(self.words) for word in ("--deselect", name)]

    def _pytest(self, options: Sequence[str], deadline: float) -> int:
        return self.machine.run(
            [*PYTEST, "--junitxml=/share/junit.xml", *options, *self._tests],
            env=ENVIRONMENT | {"SHARD": self._shard, "CONFORMANCE_RESULTS": "/share/conformance.json"}, cwd=str(ROOT), timeout_s=deadline - time.monotonic(), sink=self._say,
        )  # fmt: skip

    def _say(self, kind: bytes, data: bytes) -> None:
        """Pass whole lines on, and keep which test ended how."""
        *lines, self._line[kind] = (self._line[kind] + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace")
            if ended := _ENDED.match(text):
                self.words[ended[1]] = ended[2]
            print(f"{self._label}{text}", file=sys.stdout if kind == b"o" else sys.stderr, flush=True)
