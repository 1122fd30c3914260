"""The shell commands of docs/bundle.md, run as they stand there, and the command line's own check."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import open_folder, workspace
from tests.incident.conftest import Make, until_ended
from tests.library.conftest import IMAGES
from tests.support.require import requires

from sandbox_console.__main__ import main
from sandbox_console.service import Console
from sandbox_console.service.incident.bundle import bundle as make_bundle

__all__ = ["open_folder", "workspace"]

PAGE = (Path(__file__).parents[2] / "docs" / "bundle.md").read_text()
WHOLE, PARTS, ANCHORS, LINKS, ROWS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
SOURCE = str(Path(__file__).parents[2] / "src")
ODD = 'quotes " and \\ \x01\x1b[2J grüße 漢字 \U0001f600 \u2028 /slash \x7f'


def run(script: str, folder: Path) -> list[str]:
    done = subprocess.run(["bash", "-ec", script], cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@requires("shell-tools")
@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_the_lines_of_the_page(console: Console, make: Make, tmp_path: Path) -> None:
    ref = await make("sh", "-c", "echo out; exit 1", ODD, labels={"odd": "grüße"})
    out = io.BytesIO()
    await make("sh", "-c", "exit 0", name="between")
    await make_bundle(console, [await until_ended(console, ref)], out.write, until=4e9)
    await make_bundle(console, [await console.inspect(ref)], (out := io.BytesIO()).write, until=4e9)
    (tmp_path / "incident.tar.zst").write_bytes(out.getvalue())
    assert run(WHOLE, tmp_path) == ["the file is whole"]
    assert run(PARTS, tmp_path) == ["the parts are as named", "Signature Verified Successfully"]
    inside = tmp_path / "incident"
    assert set(run(ANCHORS, inside)) == {"Signature Verified Successfully"}
    assert run(LINKS, inside) == ["each run ends at an anchor"]
    assert run(ROWS, inside) == ["the rows are linked"]
    rows = inside / "audit" / "rows-000001.jsonl"
    rows.write_text(rows.read_text().replace('"ok"', '"no"', 1))
    told = run(ROWS, inside)
    assert [line[:11] for line in told] == ["not linked:", "the rows ar"]


def _on_a_clean_machine(*words: str, files: tuple[Path, ...]) -> str:
    """Run the console in a container with its program and these files: no home, no state, no network."""
    paths = dict.fromkeys((sys.base_prefix, sys.prefix, SOURCE, *map(str, files)))
    shown = [option for path in paths for option in ("--ro-bind", path, path)]
    links = [option for name in ("bin", "lib", "lib64") for option in ("--symlink", f"usr/{name}", f"/{name}")]
    container = ("bwrap", "--unshare-all", "--clearenv", "--ro-bind", "/usr", "/usr", *links, "--proc", "/proc", "--dev",
                 "/dev", "--tmpfs", "/tmp", *shown, "--setenv", "PYTHONPATH", SOURCE, "--setenv", "HOME", "/tmp/nobody")  # fmt: skip
    command = (sys.executable, "-m", "sandbox_console", *words)
    done = subprocess.run([*container, *command], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_by_the_command_line(
    backend: str, home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch
) -> None:
    def run(*words: str) -> tuple[int, str, str]:
        code = main(["--backend", backend, *words])
        said = capfd.readouterr()
        return code, said.out, said.err

    file = tmp_path / "evidence.tar.zst"
    create = ("create", "web", "--image", IMAGES[backend], "--env", "A=b", "--", "sh", "-c", "echo x; exit 3")
    assert run(*create)[0] == 0
    try:
        assert run("wait", "web")[0] == 0
        code, out, err = run("bundle", "web", "-o", str(file))
        assert (code, file.stat().st_mode & 0o777) == (0, 0o600)
        assert "1 sandbox, " in out
        assert "not in it: web: processes: " in err
        assert "1 value of environment variables" in err
        assert run("bundle", "web", "-o", str(file))[0] == 7
        assert run("bundle", "web", "gone", "-o", str(tmp_path / "both"))[0] == 3
        assert run("bundle", "gone", "-o", str(tmp_path / "none"))[0] == 3
        assert not (tmp_path / "none").exists()
        assert run("bundle", "web")[0] == 2
        key = tmp_path / "known.pem"
        key.write_text(run("audit", "public-key")[1])
    finally:
        run("--yes", "rm", "--force", "web")
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "nothing"))
    code, out, err = run("bundle", "verify", str(file))
    assert (code, out.startswith("ok: ")) == (0, True)
    assert "give --public-key" in err
    code, out, _ = run("--json", "bundle", "verify", str(file), "--public-key", str(key))
    assert (code, json.loads(out)["ok"]) == (0, True)
    assert _on_a_clean_machine("bundle", "verify", str(file), files=(file,)).startswith("ok: ")
    file.write_bytes(file.read_bytes()[:-1])
    code, out, _ = run("bundle", "verify", str(file))
    assert (code, out.startswith("BROKEN: the file is damaged")) == (1, True)
    assert run("bundle", "verify", str(tmp_path / "missing"))[0] == 2
    assert run("bundle", "verify", "/dev/zero")[0] == 2
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
def test_the_file_is_not_written_through_a_guests_link(
    backend: str, home: Path, workspace: Path, tmp_path, capfd
) -> None:
    folder = workspace
    command = ("ln", "-s", str(tmp_path), "/workspace/out")
    assert (
        main(["--backend", backend, "create", "web", "--image", "host", "--workspace", str(folder), "--", *command])
        == 0
    )
    try:
        assert main(["wait", "web"]) == 0
        assert (folder / "out").is_symlink()
        assert main(["bundle", "web", "-o", str(folder / "out" / "evidence")]) == 7
        assert "where a sandbox can write" in capfd.readouterr().err
        assert not (tmp_path / "evidence").exists()
    finally:
        main(["--yes", "rm", "--force", "web"])
