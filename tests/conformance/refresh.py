"""Asks each backend every check again and writes what docs/backends.md tells of it: ``make conformance``.

``python -m tests.conformance.refresh [-k EXPRESSION] [bubblewrap|docker|podman|kubernetes|microsandbox|a2a|...]...``; without a name the first three,
which are everywhere. About five minutes; microsandbox is asked in its machine, which takes longer; kubernetes below tests/kubernetes/cluster/run. With ``-k``, as pytest has
it, the checks that it names are asked and the others' stored results stay. A run that fails stores nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conformance.table import RESULTS, write

from sandbox_console.testing.conformance.table import Results

ROOT = Path(__file__).parents[2]
EVERYWHERE = ("bubblewrap", "docker", "podman")
REMOTE = {
    "a2a": "bubblewrap",
    "microsandbox_legacy": "bubblewrap",
    "opensandbox": "docker,opensandbox",
    "e2b": "bubblewrap,user",
    "daytona": "bubblewrap,user",
    "a3s": "bubblewrap,user",
}
"""What each is asked over: a2a and microsandbox_legacy against this console's own servers, e2b, daytona and a3s against stand-ins."""
COMMANDS = {
    **{name: ("-m", "pytest", "-q", "--tb=native", f"tests/conformance/test_{name}.py") for name in EVERYWHERE},
    **{name: ("-m", "pytest", "-q", "--tb=native", f"tests/conformance/test_{name}.py") for name in REMOTE},
    "kubernetes": ("-m", "pytest", "-q", "--tb=native", "tests/conformance/test_kubernetes.py"),
    "microsandbox": ("-m", "tests.support.microvm.suite", "tests/conformance/test_microsandbox.py"),
}


def refresh(name: str, only: str = "") -> bool:
    """Run the suite, or ``only`` some checks, on one backend; whether all passed, so that their results are stored."""
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.json"
        environment = {
            **os.environ,
            "REQUIRE": REMOTE.get(name, name),
            "CONFORMANCE_RESULTS": str(file),
        }
        words = [*COMMANDS[name], *(["-k", only] if only else [])]
        done = subprocess.run([sys.executable, *words], env=environment, cwd=ROOT, check=False)
        if done.returncode == 0 and file.exists():
            stored = RESULTS / f"{name}.json"
            stored.write_text(together(json.loads(stored.read_text()) if only else {}, json.loads(file.read_text())))
            return True
    sys.stderr.write(f"{name}: the run failed, its stored results are as they were\n")
    return False


def together(stored: Results, measured: Results) -> str:
    """Stored results with those of a run over them, as they are stored."""
    for label, topics in measured.items():
        for topic, checks in topics.items():
            stored.setdefault(label, {}).setdefault(topic, {}).update(checks)
    return json.dumps(stored, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser("refresh")
    parser.add_argument("-k", default="", metavar="EXPRESSION")
    parser.add_argument("names", nargs="*", default=EVERYWHERE, metavar="BACKEND")
    asked = parser.parse_args()
    if unknown := set(asked.names) - COMMANDS.keys():
        parser.error(f"no such backend: {', '.join(sorted(unknown))}; there are {', '.join(COMMANDS)}")
    passed = [refresh(name, asked.k) for name in asked.names]
    write()
    raise SystemExit(0 if all(passed) else 1)
