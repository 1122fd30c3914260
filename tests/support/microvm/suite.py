"""The tests that need microVMs, where microVMs boot: here, else in an emulated machine.

``python -m tests.support.microvm.suite [PYTEST ARGUMENT]...`` (``make test-microvm``). Results and logs come out of the
machine: ``conformance.json`` and ``junit.xml`` in its shared folder, its kernel's console on a failure. A machine that
dies is booted once more, and goes on with the tests that it had not finished.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.support.microvm.machine import DEAD, Machine
from tests.support.microvm.parts import MachineError

from sandbox_console.backends.microsandbox import kvm

ROOT = Path(__file__).parents[3]
TESTS = ("tests/conformance/test_microsandbox.py", "tests/microsandbox/test_real.py")
LIMIT_S = 20 * 60
"""For all of it: building, booting, twice if it must be, and the tests."""

# Loading every plugin of the environment takes 20 s in the machine; these two are what the tests use.
_PLUGINS = ("-p", "pytest_asyncio.plugin", "-p", "pytest_timeout", "-p", "no:cacheprovider")
_OPTIONS = ("--tb=native", "-v", "-rA", "--timeout=400")
_DONE = re.compile(rb"^(tests/\S+::\S+(?: \S+)*?) (?:PASSED|FAILED|SKIPPED|XFAIL|ERROR)", re.MULTILINE)


def main(words: list[str]) -> int:
    """Run them; gives pytest's exit code."""
    began = time.monotonic()
    code = _here(words) if kvm.problem() is None else _inside(words, began + LIMIT_S)
    sys.stderr.write(f"microVM tests: exit {code} after {time.monotonic() - began:.0f} s\n")
    return code


def _here(words: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", *_OPTIONS, *(words or TESTS)]
    environment = {**os.environ, "REQUIRE": "microsandbox"}
    return subprocess.run(command, env=environment, cwd=ROOT, timeout=LIMIT_S, check=False).returncode


def _inside(words: list[str], deadline: float) -> int:
    machine, said = Machine(f"suite-{os.getpid()}"), _Output()
    try:
        for attempt in (1, 2):
            machine.up()
            done = [word for name in said.finished() for word in ("--deselect", name)]
            code = machine.run(
                [sys.executable, "-m", "pytest", *_PLUGINS, *_OPTIONS, *_results(), *(words or TESTS), *done],
                env=_environment(), cwd=str(ROOT), timeout_s=deadline - time.monotonic(), sink=said,
            )  # fmt: skip
            if code != DEAD or time.monotonic() > deadline:
                break
            sys.stderr.write(
                f"the machine died (attempt {attempt}); the end of its console:\n{machine.console()[-1500:]}\n"
            )
        _bring_out(machine)
        return code or int(said.failed())
    except MachineError as error:
        sys.stderr.write(f"{error}\n")
        return DEAD
    finally:
        machine.remove()


def _environment() -> dict[str, str]:
    return {
        "REQUIRE": "microsandbox",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",  # it would go to the scratch disk, and be gone
        "CONFORMANCE_RESULTS": "/share/conformance.json",
    }


def _results() -> tuple[str, ...]:
    return ("--junitxml=/share/junit.xml",)


def _bring_out(machine: Machine) -> None:
    """Copy the results to where the caller wants them: CONFORMANCE_RESULTS, and build/ for the rest."""
    target = ROOT / "build" / "microvm"
    target.mkdir(parents=True, exist_ok=True)
    for name in ("conformance.json", "junit.xml"):
        if (machine.share / name).exists():
            (target / name).write_bytes((machine.share / name).read_bytes())
    (target / "console.log").write_text(machine.console())
    wanted = os.environ.get("CONFORMANCE_RESULTS")
    if wanted and (target / "conformance.json").exists():
        Path(wanted).write_bytes((target / "conformance.json").read_bytes())


class _Output:
    """Passes the machine's output on, and keeps pytest's for what was finished in it."""

    def __init__(self) -> None:
        self._text = bytearray()

    def __call__(self, kind: bytes, data: bytes) -> None:
        stream = sys.stdout if kind == b"o" else sys.stderr
        stream.buffer.write(data)
        stream.flush()
        self._text += data if kind == b"o" else b""

    def finished(self) -> list[str]:
        """The tests that ended, by their names."""
        return sorted({name.decode() for name in _DONE.findall(bytes(self._text))})

    def failed(self) -> bool:
        """Whether one of them failed, in whichever attempt."""
        return re.search(rb"^tests/\S+::.* (?:FAILED|ERROR)", bytes(self._text), re.MULTILINE) is not None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
