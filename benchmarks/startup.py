"""What the command costs before it does anything: CPU milliseconds (best of 10), beside bare Python."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 10
OFF = "[backends.docker]\nenabled = false\n[backends.microsandbox]\nenabled = false\n"


def cpu_ms(*words: str) -> float:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)

    return min(once() for _ in range(RUNS))


def main() -> None:
    command = ("-m", "sandbox_console")
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"SANDBOX_CONSOLE_HOME": home, "SANDBOX_CONSOLE_SERVER": "off"}  # command.py has it on
        rows = [
            ("python -c pass", cpu_ms("-c", "pass")),
            ("import argparse", cpu_ms("-c", "import argparse")),
            ("import textual.app", cpu_ms("-c", "import textual.app")),
            ("sandbox-console --version", cpu_ms(*command, "--version")),
            ("sandbox-console --help", cpu_ms(*command, "--help")),
            ("sandbox-console ls (every backend)", cpu_ms(*command, "ls")),
        ]
        Path(home, "config.toml").write_text(OFF)
        rows.append(("sandbox-console ls (bubblewrap)", cpu_ms(*command, "ls")))
    for name, figure in rows:
        print(f"{name:<40} {figure:7.1f} ms")


if __name__ == "__main__":
    main()
