"""What ends a command finds a process also where it showed no environment at the first look."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from sandbox_console.backends.docker.guest_files import _release
from sandbox_console.backends.docker.reaper import _SCRIPT, Reaper, new_mark
from sandbox_console.errors import BackendError, UsageError

_BLIND = """
looks=0
read() {
  if [ "$2" = e ]; then
    looks=$((looks + 1))
    [ $looks -gt BLIND ] || { e=; return 1; }
  fi
  command read "$@"
}
kill() { command kill "$@"; rm -r FOLDER; mkdir FOLDER; }
"""
"""Its reading of an environment finds nothing so many times; what was killed is gone."""


@pytest.mark.parametrize("blind", [0, 1])
def test_it_looks_a_second_time_where_it_finds_nothing(tmp_path: Path, blind: int):
    mark, child = new_mark(), subprocess.Popen(["sleep", "600"])
    folder = tmp_path / "proc" / str(child.pid)
    folder.mkdir(parents=True)
    (folder / "status").write_text("Name:\tsleep\nPPid:\t1\n")
    (folder / "environ").write_text(f"MARK={mark}\n")
    script = _BLIND.replace("BLIND", str(blind)).replace("FOLDER", str(folder)) + _SCRIPT
    script = script.replace("/proc/", f"{tmp_path}/proc/").replace(f"{tmp_path}{tmp_path}", f"{tmp_path}")
    try:
        done = subprocess.run(
            ["sh", "-c", script, "helper", mark, "KILL", "50"], timeout=60, check=False, capture_output=True
        )
        assert child.wait(timeout=60) == -9
        assert done.returncode == 0, done
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("codes", "said"), [([3, 0], ""), ([3, 3], "still there after SIGKILL"), ([127], "no working /bin/sh")]
)
async def test_what_is_slow_to_go_is_looked_for_again(monkeypatch, codes, said):
    reaper, left = Reaper(None, "box", "", new_mark()), list(codes)

    async def signal(*_):
        return left.pop(0)

    async def nowhere():
        return False

    monkeypatch.setattr(reaper, "_signal", signal)
    monkeypatch.setattr(reaper, "_from_this_host", nowhere)
    with pytest.raises(BackendError, match=said) if said else nullcontext():
        await reaper.kill()
    assert left == []


async def test_a_helper_that_cannot_be_ended_hides_no_error_before_it():
    class Held:
        ended = False

        async def kill(self):
            raise BackendError("the command may still run")

    async def refuse():
        try:
            raise UsageError("the archive's member would leave the folder")
        finally:
            await _release(Held())

    with pytest.raises(UsageError, match="would leave") as caught:
        await refuse()
    assert caught.value.__notes__ == ["the command may still run"]
    with pytest.raises(BackendError, match="may still run"):
        await _release(Held())
