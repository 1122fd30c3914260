"""The command line with its standard streams closed, or on a full disk: never an unexpected error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Make

from sandbox_console.errors import BackendError, NotFound


def _cli(home: Path, redirections: str) -> subprocess.CompletedProcess[str]:
    command = f'"$0" -m sandbox_console --backend bubblewrap ls {redirections}'
    return subprocess.run(
        ["sh", "-c", command, sys.executable], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        env=os.environ | {"SANDBOX_CONSOLE_HOME": str(home)}, timeout=30,
    )  # fmt: skip


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(tmp_path: Path, closed: str) -> None:
    done = _cli(tmp_path, closed)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "state" / "crashes").exists()


def test_a_full_disk_behind_stdout_is_told_in_one_line(tmp_path: Path) -> None:
    done = _cli(tmp_path, ">/dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: the output cannot be written: No space left on device\n"


async def test_a_sandbox_removed_while_it_starts_is_not_found(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    box = await make(start=False)
    order = box.backend._order

    def removed(*args: object) -> object:
        asked = order(*args)  # type: ignore[arg-type]
        box.backend._remove(args[0])  # type: ignore[arg-type]
        return asked

    monkeypatch.setattr(box.backend, "_order", removed)
    with pytest.raises(NotFound, match="removed while"):
        await box.start()


async def test_a_log_that_cannot_be_made_is_named(make: Make) -> None:
    box = await make(start=False)
    (box.folder / "logs").rmdir()
    (box.folder / "logs").touch()
    with pytest.raises(BackendError, match="its log cannot be written"):
        await box.start()


@pytest.mark.parametrize("_turn", range(3))
def test_an_audit_log_that_cannot_be_opened_says_nothing_raw(tmp_path: Path, _turn: int) -> None:
    (tmp_path / "state" / "audit" / "audit.db").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "sandbox_console", "audit", "ls"], capture_output=True, text=True, check=False,
        env=os.environ | {"SANDBOX_CONSOLE_HOME": str(tmp_path)}, timeout=30,
    )  # fmt: skip
    assert done.returncode == 6
    assert "Traceback" not in done.stderr
