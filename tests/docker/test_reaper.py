"""What ends a command finds a process also where it showed no environment at the first look."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sandbox_console.backends.docker.reaper import _SCRIPT, new_mark

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
