"""The tests that need microVMs, where microVMs boot: here, else in emulated machines, one a processor of this host.

``python -m tests.support.microvm.suite [PYTEST ARGUMENT]...`` (``make test-microvm``). A machine that dies is booted
once more and goes on with what it had not finished; a test that fails is run once more alone, and named as flaky where
it then passes. Results and logs come out to build/microvm: ``conformance.json`` (also to CONFORMANCE_RESULTS), each
machine's ``junit.xml`` and its kernel's console.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.microvm.machine import DEAD, GIB
from tests.support.microvm.part import OPTIONS, ROOT, Part
from tests.support.microvm.parts import MachineError, build

from sandbox_console.backends.microsandbox import kvm
from sandbox_console.testing.conformance.table import Results

TESTS = ("tests/conformance/test_microsandbox.py", *map(str, sorted(Path("tests/microsandbox").glob("test_real*.py"))))
OUTSIDE = ("tests/microsandbox/test_outside.py", "tests/microsandbox/test_outside_processors.py")
LIMIT_S = float(os.environ.get("LIMIT_S") or 20 * 60)
"""For all of it: building, booting, twice if it must be, and the tests. LIMIT_S is for a machine that others load."""

MOST = 4
"""Machines at once; more would wait for the longest test."""


def main(words: list[str]) -> int:
    """Run them; gives pytest's exit code. Words are pytest's arguments, with a path instead of TESTS."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a machine ends with whoever waits for it
    began = time.monotonic()
    words = [word for word in words if word not in ("-q", "--quiet")]  # each test's own line is read
    named = any((ROOT / word.partition("::")[0]).exists() for word in words)
    tests = words if named else [*words, *TESTS]
    code = _here(tests, began + LIMIT_S) if kvm.problem() is None else _inside(tests, began + LIMIT_S)
    if code == 0 and not named and "machine" in os.environ.get("REQUIRE", "").split(","):
        code = _outside(words, began + LIMIT_S)
    sys.stderr.write(f"microVM tests: exit {code} after {time.monotonic() - began:.0f} s\n")
    return code


def _here(tests: Sequence[str], deadline: float) -> int:
    return _pytest([*OPTIONS, *tests], deadline, {"REQUIRE": "microsandbox"})


def _outside(words: Sequence[str], deadline: float) -> int:
    """The tests that drive a machine's consoles from this host; what fails is tried once more, in another machine."""
    options = [*OPTIONS, "-rs", *words, *OUTSIDE]
    code = _pytest(options, deadline)
    if code not in (0, DEAD):
        sys.stderr.write("those that failed run once more\n")
        code = _pytest([*options, "--last-failed", "--last-failed-no-failures", "none"], deadline)
    return code


def _pytest(words: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None) -> int:
    """Its exit code, or DEAD where time ran out: it is interrupted then, so that it ends what it began."""
    command = [sys.executable, "-m", "pytest", *words]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **(environment or {})})
    try:
        return process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        sys.stderr.write("out of time\n")
        return DEAD
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(120)


def _inside(tests: Sequence[str], deadline: float) -> int:
    of = _machines()
    parts = [Part(f"suite-{os.getpid()}", number, of, tests) for number in range(of)]
    try:
        build()
        with ThreadPoolExecutor(of) as threads, _ended(parts):
            codes = list(threads.map(lambda part: part.run(deadline), parts))
            code = _judged(parts, codes, deadline)
            _bring_out(parts)
            return code
    except MachineError as error:
        sys.stderr.write(f"{error}\n")
        return DEAD


@contextlib.contextmanager
def _ended(parts: Sequence[Part]):
    try:
        yield
    finally:
        for part in parts:
            part.end()


def _machines() -> int:
    """One a processor, and 4 GiB for each."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return max(1, min(MOST, os.cpu_count() or 1, int(free.split()[1]) * 1024 // (4 * GIB)))


def _judged(parts: Sequence[Part], codes: Sequence[int], deadline: float) -> int:
    failed = [name for part in parts for name in part.failed()]
    if not failed or DEAD in codes:
        return max(codes)
    sys.stderr.write(f"{len(failed)} failed; they run once more, alone\n")
    code = parts[0].again(failed, deadline)
    if code == 0:
        sys.stderr.write("FLAKY: they passed alone. Mend these:\n" + "".join(f"  {name}\n" for name in failed))
    return code


def _together(files: Iterable[Results]) -> Results:
    found: Results = {}
    for one in files:
        for label, topics in one.items():
            for topic, checks in topics.items():
                found.setdefault(label, {}).setdefault(topic, {}).update(checks)
    return found


def _bring_out(parts: Sequence[Part]) -> None:
    target = ROOT / "build" / "microvm"
    target.mkdir(parents=True, exist_ok=True)
    found = [part.machine.share / "conformance.json" for part in reversed(parts)]  # what ran again is in the first
    results = _together(json.loads(file.read_text()) for file in found if file.exists())
    text = json.dumps(results, indent=1, sort_keys=True) + "\n"
    for path in (str(target / "conformance.json"), os.environ.get("CONFORMANCE_RESULTS")):
        if path and results:
            Path(path).write_text(text)
    for number, part in enumerate(parts):
        (target / f"console-{number}.log").write_text(part.machine.console())
        with contextlib.suppress(FileNotFoundError):
            (target / f"junit-{number}.xml").write_bytes((part.machine.share / "junit.xml").read_bytes())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
