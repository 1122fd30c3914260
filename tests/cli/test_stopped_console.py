"""A console that was stopped (SIGSTOP) while it held a lock: others give up after a few seconds and name it, or go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.support.require import requires

from sandbox_console.hostfs import file_lock
from sandbox_console.service.reads import known_names, shared_folders

SANDBOXES, NAMES, SHARES = "state/backends/bubblewrap/.lock", "state/names/lock", "state/.shares.json.lock"
HOLD = """
import fcntl, os, sys
path = sys.argv[1]
file = os.open(path, os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(file, fcntl.LOCK_EX)
os.kill(os.getpid(), 19)
"""

pytestmark = requires("bubblewrap")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lock, "WAIT_S", 0.3)
    monkeypatch.setattr(known_names, "LOCK_S", 0.05)
    monkeypatch.setattr(shared_folders, "SHORT_S", 0.05)


@pytest.fixture
def stopped(cli: Cli) -> Iterator[dict[str, int]]:
    """Make a stopped process that holds a lock: ``stopped[path]`` is its pid."""

    class Holders(dict[str, int]):
        def __missing__(self, lock: str) -> int:
            path = cli.home / lock
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)])
            made.append(process)
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            self[lock] = process.pid
            return process.pid

    made: list[subprocess.Popen[bytes]] = []
    yield Holders()
    for process in made:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder that the user of a sandbox can reach."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sandbox-console-test-") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


REFUSED = [
    (SANDBOXES, "create new --image host -- true"),
    (SANDBOXES, "rename box other"),
    (SANDBOXES, "rm box --force --yes"),
    (SANDBOXES, "update box --pids 99"),
    (SHARES, "create new --image host --workspace {work} -- true"),
    (SHARES, "forget {work}"),
    ("", "secrets add KEY --from env:HOME"),
    ("state/tokens.lock", "tokens add me --scope api"),
    ("state/ssh/lock", "ssh-config"),
]


@pytest.mark.parametrize(("lock", "words"), REFUSED, ids=[words.split(" -")[0] for _, words in REFUSED])
def test_a_verb_that_needs_its_lock_gives_up_and_names_it(
    cli: Cli, box: str, stopped: dict[str, int], work: Path, lock: str, words: str
) -> None:
    if words.startswith("forget"):
        cli.ok("create", "gone", "--image", "host", "--workspace", str(work), "--", "true")
        cli.ok("rm", "gone", "--force", "--yes")
    pid = stopped[lock]
    done = cli(*words.format(work=work).split())
    said = done.stderr.decode()
    assert done.returncode == 7, said
    assert f"process {pid} (python" in said
    assert "which was stopped: it did not let go within 0.3 s" in said
    assert f"hint: continue it (kill -CONT {pid}) or end it (kill -KILL {pid})" in said
    os.kill(pid, signal.SIGKILL)
    if lock == SANDBOXES:
        assert [one["name"] for one in cli.json("ls")] == ["box"], "what was refused was not done by half"


@pytest.mark.parametrize("lock", [SANDBOXES, SHARES, NAMES])
def test_what_needs_no_lock_goes_on(cli: Cli, box: str, stopped: dict[str, int], lock: str) -> None:
    assert stopped[lock]
    for words in ("ls", "logs box", "exec box -- true", "stop box --grace 0.1", "start box", "kill box"):
        assert cli.ok(*words.split()) is not None
