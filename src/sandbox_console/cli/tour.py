"""The tour: real commands, one after another, each shown with what it printed and how it ended."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import time

from msgspec import Struct

from sandbox_console.cli import child_process
from sandbox_console.cli.context import Sink
from sandbox_console.model.text import clean

_READY_S = 10.0


class Step(Struct, frozen=True):
    """One command: its heading, its words, and the exit code that it must end with."""

    heading: str
    words: tuple[str, ...]
    code: int = 0


def steps(name: str, backend: str, image: str) -> list[Step]:
    """The tour's commands, about a sandbox called ``name``."""
    script = 'echo "ready on stdout"; echo "and on stderr" >&2; exec sleep 600'
    target = ("--backend", backend, "--image", image)
    see = "id; echo; ls -C /; echo; cat /proc/net/dev | tail -n +3"
    return [
        Step("Every sandbox, whatever backend it is on", ("ls",)),
        Step("Create one", ("create", name, *target, "--label", "demo=1", "--", "sh", "-c", script)),
        Step("Its spec, and what is in effect", ("show", name)),
        Step("What it wrote", ("logs", name, "--timestamps")),
        Step("Run a command in it: no host user, no network", ("exec", name, "--", "sh", "-c", see)),
        Step("Its exit code is the command's", ("exec", name, "--", "sh", "-c", "exit 7"), 7),
        Step("The policy denies: read-only applies to every interface", ("rm", "--force", name, "--read-only"), 4),
        Step("Remove it", ("rm", "--force", name)),
        Step("Every attempt is recorded, including the denied one", ("audit", "ls", "--limit", "6")),
        Step("And the log is intact", ("audit", "verify")),
    ]


def tour(out: Sink, backend: str, image: str) -> int:
    """Print the tour. Returns 0 if every command ended as it must, else 1."""
    name = f"tour-{secrets.token_hex(2)}"
    as_told = True
    try:
        for step in steps(name, backend, image):
            as_told = _take(out, step, name) and as_told
    finally:
        _run(("rm", "--force", name))
    out.line("" if as_told else "\na command above did not end as it should: sandbox-console doctor")
    return 0 if as_told else 1


def _take(out: Sink, step: Step, name: str) -> bool:
    out.line(f"\n== {step.heading}")
    out.line(f"$ sandbox-console {shlex.join(step.words)}")
    if step.words[0] == "logs":
        _await_output(name)
    done = _run(step.words)
    for line in done.stdout.splitlines():
        out.line(clean(line))
    if done.returncode:
        out.line(f"[exit {done.returncode}]")
    return done.returncode == step.code


def _await_output(name: str) -> None:
    """Wait for output, because the main process may not have written yet."""
    until = time.monotonic() + _READY_S
    while time.monotonic() < until and _run(("logs", name)).stdout.count(b"\n") < 2:
        time.sleep(0.1)


def _run(words: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
    """Run one of our own commands. If interrupted, end it and wait for it, so that it leaves no unfinished work."""
    with child_process.running(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        out, _ = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out)
