"""Every way for the app to end with a shell open, on each backend, with the shell kept and not: what is left.

Run: python benchmarks/ends.py [BACKEND ...]. It prints the table of docs/tui.md: processes of the shell in the guest,
`stty -a` of the terminal beside that of a new one, and the note in the audit log.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ["SANDBOX_CONSOLE_SERVER"] = "off"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.cli.conftest import CONFIG, Cli
from tests.cli.endings import SLEEPERS, WAYS, Ending, app, ending, new_terminal
from tests.support.engine import IMAGE, private_engine
from tests.support.require import missing


@contextlib.contextmanager
def console(backend: str) -> Iterator[Cli]:
    """A command on a home of its own, with a sandbox ``box``."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cli = Cli(home)
        (home / "config.toml").write_text(CONFIG if backend == "bubblewrap" else "")
        if backend == "docker":
            cli.env["DOCKER_HOST"] = os.environ["DOCKER_HOST"] = stack.enter_context(private_engine()).url
        image = IMAGE if backend == "docker" else "host"
        cli.ok("create", "box", "--image", image, "--backend", backend, "--", "sleep", "3600")
        stack.callback(cli.ok, "rm", "box", "--force")
        yield cli


def row(backend: str, way: str, found: Ending, *, kept: bool) -> str:
    """One line of the table."""
    terminal = "as before" if found.stty == new_terminal() and found.normal_screen else "CHANGED"
    terminal = terminal if found.stty else "gone"
    told = ", ".join(
        f"{key} {value}" for key, value in found.note.items() if key in ("exit", "signal", "reason", "viewer") and value
    )
    cells = (
        way,
        found.code,
        backend,
        "kept" if kept else "plain",
        f"{len(found.left)} of {len(SLEEPERS)}",
        terminal,
        told,
    )
    return f"| {' | '.join(map(str, cells))} |"


def main(backends: list[str]) -> int:
    """Print the table."""
    print("| way | exit | backend | shell | processes left | terminal | note |\n|---|---|---|---|---|---|---|")
    for backend in backends:
        if reason := missing(backend):
            print(f"{backend}: {reason}", file=sys.stderr)
            continue
        with console(backend) as cli:
            config = cli.home / "config.toml"
            for kept in (False, True):
                config.write_text(config.read_text() + ("[shell]\nkeep = true\n" if kept else ""))
                for way in WAYS:
                    with app(cli, backend, way) as terminal:
                        found = ending(cli, terminal, way, kept=kept)
                    print(row(backend, way, found, kept=kept), flush=True)
                    for shell in cli.json("shells", "ls"):
                        cli.ok("shells", "end", shell["name"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["bubblewrap", "docker"]))
