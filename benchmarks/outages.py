"""What each verb says, and when, while an engine is frozen or dead: the tables of docs/outages.md.

Two private engines (tests/support/engine.py) are two contexts, near and far. Both have a container cx; only-near and
only-far live on one each. The far one is frozen (SIGSTOP), or killed, before the verb begins; then it is frozen, or
killed and started again, under verbs that go on. Run it as root: ``python -m benchmarks.outages [VERB]...``, all
verbs where none is named.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.support.engine import IMAGE, DockerEngine, private_engine

VERBS: tuple[tuple[str, ...], ...] = (
    ("ls",), ("stats",), ("images", "ls"), ("snapshot", "ls"), ("egress", "ls"), ("secrets", "ls"),
    ("show", "{}"), ("logs", "{}"), ("top", "{}"),
    ("port", "{}"), ("diff", "{}"), ("inspect", "{}"), ("events", "{}"), ("why", "{}"), ("timeline", "{}"),
    ("egress", "show", "{}"), ("egress", "test", "{}", "example.com"), ("wait", "{}", "--timeout", "1"),
    ("exec", "{}", "--", "true"), ("shell", "{}", "--shell", "/bin/true"),
    ("attach", "{}"), ("forward", "{}", "80"), ("cp", "{}:/etc/passwd", "-"),
    ("start", "{}"), ("stop", "{}", "--grace", "0s"), ("restart", "{}", "--grace", "0s"),
    ("pause", "{}"), ("resume", "{}"), ("kill", "{}"), ("rename", "{}", "other"), ("update", "{}", "--pids", "99"),
    ("commit", "{}", "copy:1"), ("fork", "{}", "other"), ("snapshot", "create", "{}", "s1"),
    ("egress", "allow", "{}", "example.com"), ("egress", "deny", "{}", "example.com"),
    ("egress", "remove", "{}", "example.com"),
    ("bundle", "{}", "-o", "evidence.tar.zst"), ("quarantine", "{}", "--reason", "test"),
    ("rm", "{}", "--force"), ("create", "{}", "--image", IMAGE),
    ("stop", "-l", "team=x", "--yes"), ("prune", "--yes"),
    ("images", "pull", "nowhere.invalid/x:1"), ("images", "rm", "none:1"), ("images", "prune", "--dry-run"),
    ("images", "prune", "--dry-run", "--backend", "docker/near"), ("snapshot", "rm", "s1"),
    ("up", "--yes"), ("down",), ("egress", "feed"), ("alerts", "ls"), ("audit", "ls"), ("backends",), ("doctor",),
)  # fmt: skip
NAMES = ("only-near", "only-far", "cx")
UNDER: tuple[tuple[str, ...], ...] = (
    ("exec", "only-far", "--", "sleep", "30"), ("shell", "only-far"), ("attach", "only-far"),
    ("logs", "only-far", "-f"),
    ("stats", "only-far", "--watch"), ("events", "only-far", "-f"),
    ("ls", "--watch"), ("wait", "only-far"), ("serve", "--port", "0"), ("watch",),
)  # fmt: skip
MOST_S = 40.0
RULE = '[alerts.rules.gone]\non = "backend"\n[secrets.TOKEN]\nfrom = "env:TOKEN"\n'
"""So that ``watch`` and ``secrets`` have something to do."""


class Bench:
    """Two engines, and the command on both."""

    def __init__(self, home: Path, near: DockerEngine, far: DockerEngine) -> None:
        self.home, self.near, self.far = home, near, far
        self.env = {**os.environ, "SANDBOX_CONSOLE_HOME": str(home), "DOCKER_CONFIG": str(home / "docker")}
        self.env.pop("DOCKER_HOST", None)
        tables = '[backends.docker]\ncontexts = ["near", "far"]\n'
        tables += "".join(f"[backends.{name}]\nenabled = false\n" for name in ("bubblewrap", "microsandbox"))
        (home / "config.toml").write_text(tables + RULE)
        (home / "sandbox.toml").write_text(f'name = "of-file"\nimage = "{IMAGE}"\n')
        for engine in (near, far):
            name = "near" if engine is near else "far"
            words = ["docker", "context", "create", name, "--docker", f"host={engine.url}"]
            subprocess.run(words, check=True, capture_output=True, env=self.env)

    def furnish(self, *, anew: bool = False) -> None:
        """The containers as each verb finds them: made anew where one is not as it was, or asked for.

        In a container that outlived its engine no command can be started: each of these engines has mounts of its own.
        """
        for engine, only in ((self.near, "only-near"), (self.far, "only-far")):
            found = engine.docker("ps", "-a", "--format", "{{.Names}} {{.State}}").splitlines()
            if sorted(found) == ["cx running", f"{only} running"] and not anew:
                continue
            if found:
                engine.docker("rm", "-f", *(line.split()[0] for line in found))
            host = "near" if engine is self.near else "far"
            for name in ("cx", only):
                words = ("create", name, "--image", IMAGE, "--backend", f"docker/{host}", "--", "sh", "-c", LOOP)
                done, _ = self.run(*words, "--only-answering")
                assert done.returncode == 0, done.stderr
            self.run("ls")

    def run(self, *words: str) -> tuple[subprocess.CompletedProcess[str], float]:
        """One command, and how long it took in seconds."""
        began = time.monotonic()
        argv = [*_on_terminal(words[0]), sys.executable, "-m", "sandbox_console", *words]
        try:
            done = subprocess.run(
                argv, env=self.env, cwd=self.home, capture_output=True, text=True, errors="replace", timeout=MOST_S,
                stdin=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(argv, -1, "", "still going")
        return done, time.monotonic() - began

    @contextmanager
    def away(self, how: str) -> Iterator[None]:
        """The far engine is frozen or killed for as long as the block lasts."""
        if how == "frozen":
            self.far.freeze()
        else:
            self.far.crash()
        try:
            yield
        finally:
            if how == "frozen":
                self.far.thaw()
            else:
                self.far.start()

    def during(self, how: str, *words: str) -> tuple[int, str, float]:
        """A command that goes on, and what becomes of it after the engine is killed and started, or frozen."""
        argv = [*_on_terminal(words[0]), sys.executable, "-m", "sandbox_console", *words]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        process = subprocess.Popen(argv, env=self.env, text=True, errors="replace", **pipes)  # type: ignore[call-overload]
        time.sleep(25 if words[0] in ("shell", "attach") else 8)  # busy, they take as long to open
        began = time.monotonic()
        with self.away(how), suppress(subprocess.TimeoutExpired):
            process.wait(15 if how == "frozen" else 1)
        try:
            process.wait(8)
            took = time.monotonic() - began
        except subprocess.TimeoutExpired:
            process.terminate()
            took = -1.0
        _, err = process.communicate()
        return (process.returncode if took >= 0 else -1), err, took


def _on_terminal(verb: str) -> tuple[str, ...]:
    """What gives a shell the terminal that it needs, and leaves its standard error where it is."""
    return (sys.executable, "-c", _PTY) if verb == "shell" else ()


# Keeps the terminal's other end open until the command has ended: closing it would hang up.
_PTY = """
import os, pty, subprocess, sys
ours, theirs = pty.openpty()
sys.exit(subprocess.call(sys.argv[1:], stdin=theirs, stdout=theirs))
"""
LOOP = "while :; do echo tick; sleep 1; done"


def words_of(err: str) -> str:
    """The last trouble that was told, else the last thing said, short."""
    lines = [line for line in err.splitlines() if not line.startswith("hint:")]
    lines = [line for line in lines if line.startswith(("error:", "warning:"))] or lines
    said = (lines[-1] if lines else "").replace("|", "/")
    return re.sub(r"/tmp/sc-docker-\w+/", "", said).partition(" (hint")[0]


def row(*cells: str) -> None:
    """Print a row of a Markdown table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def cell(code: int, err: str, took: float) -> str:
    """An exit code, a time and the words."""
    said = words_of(err)
    return (
        f"{'goes on' if code == -1 else code}"
        + (f" in {took:.1f} s" if took >= 0 else "")
        + (f": {said}" if said else "")
    )


def main(only: Sequence[str]) -> None:
    """Print both tables."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(home, stack.enter_context(private_engine()), stack.enter_context(private_engine()))
        row("verb", "frozen", "killed")
        row("---", "---", "---")
        for verb in VERBS:
            if only and not {verb[0], " ".join(verb[:2])} & set(only):
                continue
            for name in NAMES if any("{}" in word for word in verb) else ("",):
                words = [word.replace("{}", name) for word in verb]
                cells = []
                for how in ("frozen", "killed"):
                    bench.furnish(anew=verb[0] == "quarantine")
                    with bench.away(how):
                        done, took = bench.run(*words)
                    if verb[0] == "quarantine":
                        bench.run(*words, "--undo")
                    (home / "evidence.tar.zst").unlink(missing_ok=True)
                    cells.append(cell(done.returncode, done.stderr, took))
                row(f"`{' '.join(words).replace(IMAGE, 'I')}`", *cells)
        row("long-running verb", "frozen meanwhile", "killed and restarted meanwhile")
        row("---", "---", "---")
        for words in UNDER:
            if only and words[0] not in only:
                continue
            cells = []
            for how in ("frozen", "killed"):
                bench.furnish(anew=True)
                cells.append(cell(*bench.during(how, *words)))
            row(f"`{' '.join(words)}`", *cells)


if __name__ == "__main__":
    main(sys.argv[1:])
