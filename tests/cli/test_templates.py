"""Templates: kept, shown, compared and removed; files that nobody should have written are refused, by name."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.cli.golden import Golden, fleet
from tests.support.require import requires

from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config

CONFIG = Config(backend="fake", templates={"job": {"image": "host", "memory_mib": 64}})


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")


def test_the_life_of_templates(tmp_path: Path) -> None:
    golden = Golden(fleet(), CONFIG)
    for line in (
        "templates ls",
        "templates save web web",
        "templates save web --image host",
        "templates save web --image host --force --env LANG=C --json -- sleep 1",
        "templates save py web --memory 1G",
        "templates save nothing",
        "templates save job --image host",
        "templates ls",
        "templates ls --json",
        "templates show web",
        "templates show job --json",
        "templates show pyy",
        "templates diff py --sandbox web",
        "templates diff py job --json",
        "templates diff py py",
        "templates diff py",
        "create --template job new --label a=b --dry-run",
        "create --template web new2 --env MODE=x",
        "show new2 --toml",
        "create --template web",
        "create new3 --template nope",
        "templates rm py nope",
        "templates rm job",
        "audit ls",
    ):
        golden(line)
    golden.check("templates")
    [kept] = (tmp_path / "templates").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700


def test_broken_ones_are_named_with_their_line_and_do_not_hide_the_others(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    folder.mkdir(mode=0o700)
    for name, text in {
        "good.toml": 'image = "host"\n',
        "syntax.toml": 'image = "host"\nmemory_mib 3\n',
        "field.toml": 'image = "host"\n\nmemori = 3\negress = ["*"]\n',
        "named.toml": 'name = "x"\nimage = "host"\n',
        "deep.toml": f"{'a.' * 5000}a = 1\n",
        "job.toml": 'image = "host"\n',
        "-option.toml": 'image = "host"\n',
        "not-one.txt": "hello",
    }.items():
        (folder / name).write_text(text)
    (folder / "latin.toml").write_bytes(b"\xff = 1")
    (folder / "long.toml").write_bytes(b"#" * (1 << 20) + b"##")
    (folder / "a\x1b]0;evil\x07.toml").write_text('image = "host"\n')
    (folder / "folder.toml").mkdir()
    os.mkfifo(folder / "pipe.toml")
    (folder / "gone.toml").symlink_to(tmp_path / "nowhere")
    golden = Golden(fleet(), CONFIG)
    for line in ("templates ls", "templates show field", "create --template syntax x", "templates show good"):
        golden(line)
    golden.check("templates-broken")


@pytest.mark.parametrize(
    "name", ["..", ".", "", "../x", "a/b", "/etc/passwd", ".hidden", "a\0b", "a\nb", "é", "x" * 64]
)
def test_hostile_names_touch_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.toml").write_text('image = "host"\n')
    golden = Golden(fleet(), CONFIG)
    quoted = "'" + name + "'"
    for line in (f"templates save {quoted} web", f"templates rm {quoted}", f"templates show {quoted}"):
        assert golden(line) == 2, golden.transcript
    assert golden(f"create --template {quoted} new --image host") == (2 if name else 0)
    assert not (tmp_path / "templates").exists()
    assert (tmp_path / "x.toml").exists()


def test_the_value_of_a_secret_is_never_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary-93f1c7d2")
    golden = Golden(fleet(), Config(backend="fake", secrets={"X": SecretSource(source="env:CANARY")}))
    for words in ("--env MODE=canary-93f1c7d2", "-- echo canary-93f1c7d2", "--label a=canary-93f1c7d2"):
        assert golden(f"templates save leak --image host {words}") == 2
    said = [line for line in golden.transcript.splitlines() if not line.startswith("$")]
    assert not [line for line in said if "canary" in line]
    assert golden("templates save fine web") == 0  # its API_KEY and the password of its DB are left out
    text = (tmp_path / "templates" / "fine.toml").read_text()
    assert "canary" not in text
    assert "MODE" in text
    assert "API_KEY is left out" in golden.transcript


def test_a_read_only_console_keeps_and_removes_none(tmp_path: Path) -> None:
    golden = Golden(fleet(), Config(backend="fake", policy=Rules(read_only=True)))
    assert golden("templates save web web") == 4
    assert golden("templates rm web") == 4
    assert not (tmp_path / "templates").exists()


def test_a_folder_that_others_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "x.toml").write_text('image = "host"\n')
    folder.chmod(0o777)
    golden = Golden(fleet(), CONFIG)
    assert golden("create --template x new") == 2
    assert golden("templates save y web") == 2
    assert "every user may write" in golden.transcript


@requires("bubblewrap")
def test_a_sandbox_is_made_from_one_for_real(cli) -> None:
    cli.ok("templates", "save", "py", "--image", "host", "--env", "A=1", "--", "sleep", "100")
    cli.ok("create", "box", "--template", "py", "--env", "B=2")
    assert cli.ok("exec", "box", "--", "sh", "-c", "echo $A$B") == b"12\n"
    assert cli("templates", "diff", "py", "--sandbox", "box").returncode == 1
