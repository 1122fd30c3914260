"""The skeleton of a backend: written, nothing installed, and the suite passes on it in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from sandbox_console.__main__ import main
from sandbox_console.errors import UsageError
from sandbox_console.testing import new_backend


@pytest.mark.slow
def test_what_is_written_passes_the_suite(tmp_path) -> None:
    words = [sys.executable, "-m", "sandbox_console", "new-backend", "my_cloud", str(tmp_path)]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert [line.rpartition("/")[2] for line in told.splitlines()] == [
        "my_cloud.py",
        "test_my_cloud.py",
        "conftest.py",
        "pyproject.toml",
    ]
    code = [line for line in (tmp_path / "my_cloud.py").read_text().splitlines() if line.strip()]
    assert len(code) < 120
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout


def test_nothing_is_written_over_and_no_odd_name_is_taken(tmp_path, capsys) -> None:
    assert main(["new-backend", "mine", str(tmp_path), "--json"]) == 0
    made = [json.loads(line)["path"] for line in capsys.readouterr().out.splitlines()]
    assert sorted(made) == sorted(map(str, tmp_path.iterdir()))
    compile((tmp_path / "mine.py").read_text(), "mine.py", "exec")
    assert "class MineProvider" in (tmp_path / "mine.py").read_text()
    assert "my_backend" not in "".join(file.read_text() for file in tmp_path.iterdir())
    with pytest.raises(UsageError, match="exists already"):
        new_backend.write("mine", tmp_path)
    for name in ("../evil", "Mine", "a-b", ""):
        with pytest.raises(UsageError, match="is not a valid name"):
            new_backend.write(name, tmp_path / "other")
    assert not (tmp_path / "other").exists()
    assert main(["new-backend"]) == 2
    assert main(["new-backend", "mine", str(tmp_path)]) == 2
    assert main(["new-backend", "mine", str(tmp_path / "mine.py" / "below")]) == 1
    assert "NAME" in capsys.readouterr().err
