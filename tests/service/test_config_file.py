"""Tables are added to the configuration and removed from it; the file is the old or the new one, always whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from sandbox_console.errors import ConfigError, Conflict, NotFound
from sandbox_console.service import config_file
from sandbox_console.service.config import load
from sandbox_console.service.paths import Paths

BEGUN = """\
# mine
[policy]  # a ceiling
ask = ["kill"]

# about A
[secrets.A]  # of the console
from = "env:A"

# about B
[secrets."B"]
from = 'file:/b'
hosts = [ # two
  "b.example",
]
"""


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    file = folder / "config.toml"
    file.write_text(BEGUN)
    file.chmod(0o600)
    return file


def add(path: Path, name: str = "NEW", **values: object) -> None:
    config_file.add_table(path, "secrets", name, {"from": "env:NEW", **values})


def names(path: Path) -> list[str]:
    return sorted(load(Paths(path, path.parent)).secrets)


def test_a_table_is_added_and_everything_else_stays_as_it_is(path):
    path.chmod(0o644)
    add(path, hosts=["new.example"])
    text = path.read_text()
    assert text.startswith(BEGUN)
    assert tomllib.loads(text)["secrets"]["NEW"] == {"from": "env:NEW", "hosts": ["new.example"]}
    assert path.stat().st_mode & 0o777 == 0o600
    config_file.remove_table(path, "secrets", "NEW")
    assert path.read_text().rstrip() == BEGUN.rstrip()


def test_a_removed_table_leaves_the_comments_of_the_next_one(path):
    config_file.remove_table(path, "secrets", "A")
    assert names(path) == ["B"]
    assert "# about B\n" in path.read_text()
    config_file.remove_table(path, "secrets", "B")  # its value has several lines
    assert tomllib.loads(path.read_text()) == {"policy": {"ask": ["kill"]}}


@pytest.mark.parametrize(
    "text",
    ["", 'secrets = { A = { from = "env:A" } } # x\n', 'secrets.A.from = "env:A" # x\n', '[secrets]\nA = {from = "env:A"}\n',
     '[secrets.A]\nfrom = "env:A"\n[policy]\n[secrets.B]\nfrom = "env:B"\n', "\r\n# win\r\n[policy]\r\nread_only = true\r\n"],
)  # fmt: skip
def test_every_form_of_toml_is_changed(path, text):
    path.write_bytes(text.encode())
    before = names(path)
    add(path)
    assert names(path) == sorted([*before, "NEW"])
    for comment in ("# x", "# win"):
        assert (comment in text) == (comment in path.read_text())
    for name in [*before, "NEW"]:
        config_file.remove_table(path, "secrets", name)
    assert names(path) == []


def test_a_file_that_is_not_there_is_made_for_its_owner_alone(tmp_path):
    path = tmp_path / "a" / "b" / "config.toml"
    add(path)
    assert names(path) == ["NEW"]
    assert [one.stat().st_mode & 0o777 for one in (path, path.parent, path.parent.parent)] == [0o600, 0o700, 0o700]
    assert [one.name for one in path.parent.iterdir()] == ["config.toml"]


def test_what_is_there_or_not_there_is_told(path):
    with pytest.raises(Conflict, match=r"secrets\.A is in .* already"):
        add(path, "A")
    with pytest.raises(NotFound, match=r"secrets\.Z is not in"):
        config_file.remove_table(path, "secrets", "Z")
    with pytest.raises(ConfigError, match=r"secrets\.NEW: from is not a source"):
        config_file.add_table(path, "secrets", "NEW", {"from": "nowhere"})
    path.write_text(f"{BEGUN}[polic\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        add(path)
    assert path.read_text() == f"{BEGUN}[polic\n"


@pytest.mark.parametrize("planted", ["link", "dangling", "fifo", "folder"])
def test_what_is_planted_in_its_place_is_refused_and_left_alone(path, tmp_path, planted):
    other = tmp_path / "other.toml"
    path.unlink()
    match planted:
        case "link":
            other.write_text("# theirs\n")
            path.symlink_to(other)
        case "dangling":
            path.symlink_to(other)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    with pytest.raises(ConfigError, match=r"is a link|is not a file|cannot be"):
        add(path)
    assert not other.exists() or other.read_text() == "# theirs\n"
    assert not [one for one in path.parent.iterdir() if one.suffix == ".part"]


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_file_that_others_may_write_is_not_changed(path, what):
    (path if what == "file" else path.parent).chmod(0o777)
    with pytest.raises(ConfigError, match="every user may write"):
        add(path)
    assert path.read_text() == BEGUN


def test_a_write_of_an_editor_in_between_is_not_lost(path, monkeypatch):
    real, done = config_file._replace, []

    def late(folder, where, before, text):
        if not done:
            done.append(True)
            path.write_text(BEGUN + '[secrets.EDITED]\nfrom = "env:E"\n')
        return real(folder, where, before, text)

    monkeypatch.setattr(config_file, "_replace", late)
    add(path)
    assert names(path) == ["A", "B", "EDITED", "NEW"]


def test_a_full_disk_leaves_the_old_file(path):
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from sandbox_console.service import config_file\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))\n"
        "config_file.add_table(Path(sys.argv[1]), 'secrets', 'NEW', {'from': 'env:NEW'})\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert "cannot be written: File too large; it is as it was" in ran.stderr
    assert path.read_text() == BEGUN
    assert [one.name for one in path.parent.iterdir()] == ["config.toml"]


MANY = """
import sys; from pathlib import Path
from sandbox_console.service import config_file
path, mark, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
print("ready", flush=True)
for at in range(times):
    config_file.add_table(path, "secrets", f"{mark}{at}", {"from": "env:X"})
"""


def writer(path: Path, mark: str, times: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", MANY, path, mark, str(times)], stdout=subprocess.PIPE)


def test_two_consoles_at_once_lose_nothing(path):
    writers = [writer(path, mark, 6) for mark in ("ONE_", "TWO_")]
    while any(one.poll() is None for one in writers):
        assert {"A", "B"} <= set(names(path)), "a reader finds it whole at any time"
    assert [one.wait() for one in writers] == [0, 0]
    for one in writers:
        one.stdout.close()
    assert len(names(path)) == 2 + 12


@pytest.mark.slow
def test_kill_while_it_writes_leaves_the_old_or_the_new_file(path):
    chance = random.Random(7)
    for at in range(12):
        before = set(names(path))
        with writer(path, f"N{at}_", 1000) as one:
            one.stdout.readline()
            time.sleep(chance.uniform(0, 0.05))
            one.send_signal(signal.SIGKILL)
        after = names(path)
        assert before <= set(after), "nothing is lost"
        assert set(after) - before == {f"N{at}_{number}" for number in range(len(after) - len(before))}
    add(path)
    assert "NEW" in names(path), "what a killed one left is in nobody's way"
