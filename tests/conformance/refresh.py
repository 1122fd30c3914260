"""Asks each backend every check again and writes what docs/backends.md tells of it: ``make conformance``.

``python -m tests.conformance.refresh [bubblewrap|docker|microsandbox]...``; without a name the first two, which are
everywhere. About five minutes; microsandbox is asked in its machine, which takes longer. A run that fails stores nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conformance.table import RESULTS, write

ROOT = Path(__file__).parents[2]
EVERYWHERE = ("bubblewrap", "docker")
COMMANDS = {
    **{name: ("-m", "pytest", "-q", "--tb=native", f"tests/conformance/test_{name}.py") for name in EVERYWHERE},
    "microsandbox": ("-m", "tests.support.microvm.suite", "tests/conformance/test_microsandbox.py"),
}


def refresh(name: str) -> bool:
    """Run the suite on one backend; whether all of it passed, so that its results are stored."""
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        environment = {**os.environ, "REQUIRE": name, "CONFORMANCE_RESULTS": str(file)}
        done = subprocess.run([sys.executable, *COMMANDS[name]], env=environment, cwd=ROOT, check=False)
        if done.returncode == 0 and file.exists():
            (RESULTS / f"{name}.json").write_text(file.read_text())
            return True
    sys.stderr.write(f"{name}: the run failed, its stored results are as they were\n")
    return False


if __name__ == "__main__":
    names = sys.argv[1:] or EVERYWHERE
    if unknown := set(names) - COMMANDS.keys():
        raise SystemExit(f"no such backend: {', '.join(sorted(unknown))}; there are {', '.join(COMMANDS)}")
    passed = [refresh(name) for name in names]
    write()
    raise SystemExit(0 if all(passed) else 1)
