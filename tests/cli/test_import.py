"""``import`` byte for byte, and what ``--create`` asks before it makes anything."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.golden import Golden, fleet
from tests.support.require import requires

from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")
    monkeypatch.delenv("TAG", raising=False)
    monkeypatch.chdir(tmp_path)


def test_import(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text(
        "services:\n  web:\n    image: python:${TAG:-3.12}\n    command: sleep 10\n    depends_on: [db]\n"
        "    network_mode: none\n  db: {extends: web}\n"
    )
    (tmp_path / "broken.yaml").write_text("services:\n  web: [\n")
    (tmp_path / ".devcontainer").mkdir()
    (tmp_path / ".devcontainer" / "devcontainer.json").write_text('{"name": "dev", // x\n"image": "python:3.12",}')
    golden = Golden(fleet())
    for line in (
        "import docker-run -- docker run -d --name new -e A=1 -e TOKEN=x -m 512m --network none python:3.12 sleep 5",
        "import docker-run --json -- --privileged --network none python:3.12",
        "import docker-run -- docker ps",
        "import docker-run -- docker run --frobnicate x",
        "import docker-run --name 'bad name' -- --network none python:3.12",
        "import compose compose.yaml web",
        "import compose compose.yaml wbe",
        "import compose compose.yaml db",
        "import compose broken.yaml",
        "import compose /dev/zero",
        "import compose nope.yaml",
        "import sandbox web --name copy",
        "import sandbox theirs",
        "import docker-run --create --json -- --name new --network none python:3.12 sleep 5",
        "show new --toml",
        "import docker-run --create -- --name hosted -p 80 --network none python:3.12",
        "import docker-run --create --name 'bad name' -- --network none python:3.12",
        "import compose compose.yaml web -- x",
    ):
        golden(line)
    golden.check("import")
    code = golden("import devcontainer")
    assert code == 0
    assert f'workspace = "{tmp_path}"' in golden.transcript


def test_a_sandbox_is_made_beside_the_one_that_it_is_read_from_not_in_the_default_backend() -> None:
    first = FakeBackend(name="first", images=("host",))
    golden = Golden([first, *fleet()], Config(backend="first"))
    assert golden("import sandbox web --name copy --create --yes") == 0, golden.transcript
    assert golden("import sandbox web --name far --create --yes --backend first") != 0  # and --backend is not ignored
    assert golden("ls --format '{{.Backend}} {{.Name}}'") == 0
    assert "fake copy" in golden.transcript
    assert "far" not in golden.transcript.rpartition("$ ls")[2]


@requires("bubblewrap")
def test_a_line_on_stdin_makes_a_sandbox(cli) -> None:
    line = b"docker run -d --name made \\\n  -e A='two words' --network none host sleep 100\n"
    printed = cli.ok("import", "docker-run", stdin=line)
    assert b'A = "two words"' in printed
    made = cli("import", "docker-run", "--create", stdin=line)
    assert made.returncode == 0, made
    assert cli.ok("exec", "made", "--", "sh", "-c", 'echo "$A"') == b"two words\n"
