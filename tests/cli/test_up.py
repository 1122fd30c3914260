"""``up`` and ``down`` on real sandboxes, with files that a stranger may have written."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.conftest import CONFIG, Cli
from tests.support.require import requires

from sandbox_console.service.reads.known_names import Known, Named

pytestmark = requires("bubblewrap")

TWO = """
[[sandbox]]
name = "web"
image = "host"
command = ["sleep", "1000"]
env = { MODE = "one" }

[[sandbox]]
name = "job"
image = "host"
workspace = "sub"
"""


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project's folder that the guest's user can reach, unlike those of pytest."""
    above = Path(tempfile.mkdtemp(prefix="sandbox-console-up-")).resolve()
    made = above / "project"
    for one in (above, made, made / "sub", above / "outside"):
        one.mkdir(exist_ok=True)
        one.chmod(0o777 if one.name in ("sub", "outside") else 0o755)
    monkeypatch.chdir(made)
    yield made
    shutil.rmtree(above)


def write(folder: Path, text: str) -> None:
    (folder / "sandbox.toml").write_text(text)


def boxes(cli: Cli) -> dict[str, dict[str, Any]]:
    return {box["name"]: box for box in cli.json("ls", "--all")}


def test_up_makes_what_is_missing_changes_what_differs_and_leaves_the_rest(cli: Cli, folder: Path) -> None:
    write(folder, TWO)
    assert [row["action"] for row in cli.json("up", "--dry-run")] == ["create", "create"]
    assert boxes(cli) == {}
    assert [row["action"] for row in cli.json("up")] == ["create", "create"]
    first = boxes(cli)
    assert cli.json("show", "job")[0]["spec"]["workspace"] == str(folder / "sub")
    again = cli.json("up")
    assert [(row["action"], row["audit_id"]) for row in again] == [("nothing", None)] * 2
    write(folder, TWO.replace('"job"', '"job"\nlabels = { a = "b" }'))  # live on bubblewrap
    assert [row["action"] for row in cli.json("up")] == ["nothing", "update"]
    assert {name: box["ref"] for name, box in boxes(cli).items()} == {name: box["ref"] for name, box in first.items()}
    write(folder, TWO.replace('"one"', '"two"').replace('"job"', '"job"\nlabels = { a = "b" }'))
    refused = cli("up")
    assert refused.returncode == 4
    assert b"recreated, because of env" in refused.stderr
    assert boxes(cli)["web"]["ref"] == first["web"]["ref"]
    assert [row["action"] for row in cli.json("up", "--yes")] == ["recreate", "nothing"]
    assert cli.ok("exec", "web", "--", "sh", "-c", "echo $MODE") == b"two\n"


def test_up_applies_a_changed_list_of_hosts_live_and_keeps_what_was_denied(cli: Cli, folder: Path) -> None:
    write(folder, 'name = "web"\nimage = "host"\ncommand = ["sleep", "1000"]\negress = ["a.example.com"]\n')
    cli.ok("up", "--yes")
    before = boxes(cli)["web"]
    cli.ok("egress", "deny", "web", "b.example.com")
    write(folder, (folder / "sandbox.toml").read_text().replace('"a.', '"b.example.com", "c.'))
    asks = cli.json("up", "--dry-run")[0]["asks"]
    assert asks == ["it may connect to b.example.com, c.example.com"]  # and not: it is recreated
    assert [row["action"] for row in cli.json("up", "--yes")] == ["update"]
    assert boxes(cli)["web"]["ref"] == before["ref"]
    asked = [cli("egress", "test", "web", f"{one}.example.com").returncode for one in "abc"]
    assert asked == [1, 1, 0]


def test_down_removes_exactly_what_the_file_made(cli: Cli, folder: Path) -> None:
    write(folder, TWO)
    cli.ok("up")
    cli.ok("create", "mine", "--image", "host")
    cli.ok("create", "forged", "--image", "host", "-l", f"up.file={folder / 'sandbox.toml'}#000000000000")
    write(folder, TWO.replace("job", "other"))
    assert b"job is no longer in the file" in cli("up").stderr
    assert cli("down", "mine").returncode == 4  # another's: asked
    assert [row["name"] for row in cli.json("down", "--dry-run")] == ["job", "other", "web"]
    (folder / "sandbox.toml").write_text("broken [")
    assert cli.ok("down") == b"job  removed\nother  removed\nweb  removed\n"
    assert cli("down").returncode == 0
    assert set(boxes(cli)) == {"mine", "forged"}
    assert cli.ok("down", "mine", "--yes") == b"mine  removed\n"
    assert cli("down", "nothing").returncode == 3


def test_one_that_the_file_did_not_make_is_taken_over_only_after_a_question(cli: Cli, folder: Path) -> None:
    cli.ok("create", "web", "--image", "host", "--env", "MODE=one", "--", "sleep", "1000")
    write(folder, TWO)
    refused = cli("up")
    assert refused.returncode == 4
    assert b"was not made by this file" in refused.stderr
    assert set(boxes(cli)) == {"web"}  # all or nothing: the question comes first
    cli.ok("up", "--yes")
    assert cli.json("up")[0]["action"] == "nothing"


@pytest.fixture
def frozen(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """A Docker engine that accepts and says nothing. The function stores a list of it, as if it had answered."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen(50)
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        config = (cli.home / "config.toml").read_text().replace("enabled = false", "timeout_s = 0.5", 1)
        (cli.home / "config.toml").write_text(config)

        def holds(file: str) -> None:
            held = Known(1.0, names=(Named("held", "abcdef123456", file=file),), files=True)
            (cli.home / "state" / "names" / "docker%2Fdefault.json").write_bytes(msgspec.json.encode(held))

        yield holds
    (cli.home / "config.toml").write_text(CONFIG)


def test_up_and_down_go_on_beside_a_frozen_engine_that_has_nothing_of_the_file(
    cli: Cli, folder: Path, frozen: Callable[[str], None]
) -> None:
    write(folder, TWO)
    refused = cli("up")
    assert (refused.returncode, b"docker/default" in refused.stderr) == (5, True)  # it has never been listed
    assert cli.ok("ls", "-q") == b""
    frozen("another#1")
    assert [row["action"] for row in cli.json("up", "--backend", "bubblewrap")] == ["create", "create"]
    assert [row["action"] for row in cli.json("up", "--backend", "bubblewrap")] == ["nothing", "nothing"]
    assert cli("down").stderr == b""
    assert cli.ok("ls", "-q") == b""


def test_a_frozen_engine_that_has_something_of_the_file_fails_up_and_down(
    cli: Cli, folder: Path, frozen: Callable[[str], None]
) -> None:
    write(folder, TWO)
    cli.ok("up", "--backend", "bubblewrap", "--only-answering")
    frozen(cli.json("show", "web")[0]["labels"]["up.file"])
    assert b"held is no longer in the file" in cli("up").stderr
    write(folder, TWO.replace('"job"', '"held"'))
    refused = cli("up")
    assert (refused.returncode, b"docker/default does not answer and held 'held'" in refused.stderr) == (5, True)
    write(folder, TWO)
    gone = cli("down", "--json")
    assert (gone.returncode, gone.stdout.count(b'"remove"')) == (5, 2)  # those that answer are removed
    assert b"docker/default does not answer and may have sandboxes of" in gone.stderr
    assert cli("down", "--only-answering").returncode == 0
    assert cli("down", "--backend", "bubblewrap").returncode == 0


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ('workspace = "/srv"', "it may write /srv"),
        ('workspace = "../outside"', "which is outside"),
        ('workspace = "link"', "which is outside"),
        ('image = "dir:."', "it may read"),
        ('egress = ["evil.example.com"]', "it may connect to evil.example.com"),
        ('ports = ["18080:80"]', "published on this host: 18080:80"),
        ('secrets = ["TOKEN"]', "it gets the secrets TOKEN"),
    ],
)
def test_what_a_file_asks_of_this_machine_is_asked(cli: Cli, folder: Path, fields: str, told: str) -> None:
    (folder / "link").symlink_to(folder.parent / "outside")
    (folder / "bin").mkdir()  # as much of a root as is looked at before it is started
    with (cli.home / "config.toml").open("a") as file:
        file.write('[secrets.TOKEN]\nfrom = "env:HOME"\n')
    image = "" if "image" in fields else 'image = "host"\n'
    write(folder, f'name = "x"\n{image}{fields}\n')
    assert told in cli.ok("up", "--dry-run").decode()
    refused = cli("up", "--json")
    assert refused.returncode == 4
    error = json.loads(refused.stderr)
    assert error["code"] == "needs_confirmation"
    assert told in error["message"]
    assert boxes(cli) == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name = "x"\nimagee = "host"\n', "line 2: imagee: unknown field"),
        ('[[sandbox]]\nname = "a"\n\n[[sandbox]]\nname = "b"\ncpus = "x"\n', "line 6: cpus"),
        ('[[sandbox]]\nname = "a"\n[[sandbox]]\nname = "a"\n', "two sandboxes have the name 'a'"),
        ('[[sandbox]]\nname = "../a"\n', "line 2: name"),
        ('[[sandbox]]\nimage = "host"\n', "line 1: name: a name is needed"),
        ('name = "x"\n[[sandbox]]\nname = "y"\n', "stands beside [[sandbox]]"),
        ("sandbox = 3\n", "not a list of tables"),
        ('name = "x"\n[labels]\n"up.file" = "/x"\n', "is set by up"),
        ("[[sandbox]]\n" * 101, "100 are the most"),
        (f"{'a.' * 5000}a = 1\n", "nested too deep"),
        ("name = ", "neither TOML nor JSON"),
    ],
)
def test_a_broken_file_is_named_with_its_line(cli: Cli, folder: Path, text: str, told: str) -> None:
    write(folder, text)
    done = cli("up")
    assert done.returncode == 2
    assert told in done.stderr.decode()


def test_files_that_are_no_files_are_refused(cli: Cli, folder: Path) -> None:
    assert cli("up").returncode == 2  # there is none
    assert cli("up", "-f", "-").returncode == 2
    assert cli("up", "-f", "/dev/zero").returncode == 2
    assert cli("up", "nothing").returncode == 2
    write(folder, TWO)
    assert cli("up", "jbo").returncode == 3
    assert cli("up", "job", "--dry-run").stdout == b"job  create\n"


def answered(cli: Cli, answer: bytes) -> tuple[int, bytes]:
    """``up`` at a terminal, with an answer to its question."""
    main, inner = pty.openpty()
    process = cli.start("up", stdin=inner, stderr=inner)
    os.close(inner)
    told, deadline = b"", time.monotonic() + 30
    while b"[y/N]" not in told and time.monotonic() < deadline:
        if select.select([main], [], [], 0.2)[0]:
            told += os.read(main, 4096)
    os.write(main, answer)
    try:
        return process.wait(30), told
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    finally:
        process.communicate()
        os.close(main)


def test_a_person_is_asked_and_a_no_does_nothing(cli: Cli, folder: Path) -> None:
    write(folder, 'name = "x"\nimage = "host"\negress = ["api.example.com"]\n')
    code, told = answered(cli, b"n\n")
    assert code == 1
    assert b"x: it may connect to api.example.com" in told
    assert boxes(cli) == {}
    assert answered(cli, b"y\n")[0] == 0
    assert set(boxes(cli)) == {"x"}
    assert cli.json("up")[0]["action"] == "nothing"  # what it has is not asked again
