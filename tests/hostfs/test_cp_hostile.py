"""``cp`` with a real guest that plants and swaps what it can, on bubblewrap and Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.support.as_user import UID
from tests.support.engine import IMAGE, DockerEngine
from tests.support.require import missing

ROUNDS = [1, pytest.param(40, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]

# A guest's shell is slow at swapping, so it never sleeps: a link and the real thing take turns at one name.
SWAP = """cd /workspace; mkdir -p real/job; echo theirs >real/job/secret; ln -sfn %s planted
while :; do mv -T real x 2>/dev/null; mv -T x real; mv -T real out; mv -T out real; mv -T planted out; mv -T out planted
mv -T real/job job; mv -T planted real/job; mv -T real/job planted; mv -T job real/job; done 2>/dev/null"""


@pytest.fixture(params=["bubblewrap", "docker"])
def on(request, cli: Cli, monkeypatch) -> str:
    """Words of ``create`` for each backend."""
    if reason := missing(request.param):
        pytest.skip(reason)
    if request.param == "bubblewrap":
        return "--backend=bubblewrap --image=host"
    engine: DockerEngine = request.getfixturevalue("docker_engine")
    cli.env["DOCKER_HOST"] = engine.url
    config = cli.home / "config.toml"
    config.write_text(config.read_text().replace("[backends.docker]\nenabled = false\n", ""))
    return f"--backend=docker --image={IMAGE}"


@pytest.fixture
def place():
    """A workspace that any user may write, and a folder of the operator's; out of pytest's, which guests cannot reach."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="sandbox-console-test-"))
    folder.chmod(0o711)
    (folder / "ws").mkdir()
    (folder / "ws").chmod(0o777)
    (folder / "private").mkdir()
    (folder / "private/secret").write_text("of the host")
    (folder / "private/secret").chmod(0o600)
    yield folder
    shutil.rmtree(folder)


def made(cli: Cli, on: str, name: str, place: Path | None, *command: str) -> None:
    words = ["create", name, *on.split(), *(["--workspace", str(place / "ws")] if place else [])]
    cli.ok(*words, "--", *(command or ("sleep", "1000")))


def untouched(place: Path) -> None:
    assert os.listdir(place / "private") == ["secret"]
    assert (place / "private/secret").read_text() == "of the host"


def test_a_planted_link_takes_no_copy(cli: Cli, on: str, place: Path) -> None:
    """The finding: ``ln -s /host/dir /workspace/out`` and ``cp NAME:/tmp/out WORKSPACE/``."""
    made(cli, on, "box", place)
    plant = f"mkdir -p /tmp/out && echo x >/tmp/out/job && ln -s {place}/private /workspace/out"
    cli.ok("exec", "box", "--", "sh", "-c", plant)
    for target in (f"{place}/ws/", f"{place}/ws", f"{place}/ws/out", f"{place}/ws/out/new"):
        done = cli("cp", "box:/tmp/out", target)
        assert done.returncode == 7, (target, done)
        assert b"where a sandbox can write" in done.stderr
    for source in ("ws/out/secret", "ws/out/", "ws/out/."):
        assert cli("cp", f"{place}/{source}", "box:/tmp").returncode == 7
    assert cli("cp", "-L", f"{place}/ws/out", "box:/tmp/o").returncode == 7
    assert cli("create", "-f", f"{place}/ws/out/secret").returncode == 7
    assert cli("audit", "export", "-o", f"{place}/ws/out/audit").returncode == 7
    untouched(place)


OUTWARD = {
    "a link to a folder": ("ln -s {p} x", "x/new"),
    "a link to a file": ("ln -s {p}/secret x", "x"),
    "a dangling link": ("ln -s {p}/new x", "x"),
    "a chain": ("ln -s {p} y; ln -s y x", "x/new"),
    "a relative link": ("ln -s ../../private x", "x/new"),
    "a link on the way": ("mkdir d; ln -s {p} d/x", "d/x/new"),
    "a way up behind a link": ("ln -s {p}/sub x", "x/../new"),
    "/proc/self/root": ("ln -s /proc/self/root{p} x", "x/new"),
    "/proc/self/cwd": ("ln -s /proc/self/cwd x", "x/new"),
    "a file in a folder that is there": ("ln -s {p}/secret f", ""),
}


def planted(cli: Cli, place: Path, variants: dict[str, tuple[str, ...]]) -> dict[str, Path]:
    """A folder of the workspace for each variant, with what it plants."""
    folders = {how: f"v{at}" for at, how in enumerate(variants)}
    lines = [f"mkdir {folders[how]}; cd {folders[how]}; {words[0]}; cd .." for how, words in variants.items()]
    script = "set -e; umask 0; echo theirs >/tmp/f; cd /workspace\n" + "\n".join(lines)
    cli.ok("exec", "box", "--", "sh", "-c", script.format(p=place / "private"))
    return {how: place / "ws" / name for how, name in folders.items()}


def test_out_through_what_is_planted(cli: Cli, on: str, place: Path, monkeypatch) -> None:
    """Ten ways by which a copy out could be led into a folder of the operator's."""
    (place / "private/sub").mkdir()
    monkeypatch.chdir(place / "private")
    made(cli, on, "box", place)
    got = []
    for how, folder in planted(cli, place, OUTWARD).items():
        done = cli("cp", "box:/tmp/f", f"{folder}/{OUTWARD[how][1]}")
        if (
            sorted(os.listdir(place / "private")) != ["secret", "sub"]
            or b"where a sandbox can write" not in done.stderr
        ):
            got.append((how, done))
    assert [how for how, _ in got] == ["a file in a folder that is there"], got
    file = place / "ws/v9/f"  # it takes the place of a link in a folder
    assert (got[0][1].returncode, file.is_symlink(), file.read_text()) == (0, False, "theirs\n")
    (place / "private/sub").rmdir()
    untouched(place)


INWARD = {
    "a link to a folder": ("ln -s {p} x", "x/secret", ()),
    "a link that is followed": ("ln -s {p}/secret x", "x", ("-L",)),
    "a folder by its slash": ("ln -s {p} x", "x/", ()),
    "what is in a folder": ("ln -s {p} x", "x/.", ()),
    "a chain": ("ln -s {p} y; ln -s y x", "x/secret", ()),
    "a relative link": ("ln -s ../../private x", "x/secret", ()),
    "a link on the way": ("mkdir d; ln -s {p} d/x", "d/x/secret", ()),
    "a way up behind a link": ("ln -s {p}/sub x", "x/../secret", ()),
    "/proc/self/root": ("ln -s /proc/self/root{p} x", "x/secret", ()),
    "a folder with a link, followed": ("mkdir d; ln -s {p}/secret d/x", "d", ("-L",)),
}


def test_in_through_what_is_planted(cli: Cli, on: str, place: Path) -> None:
    """Ten ways by which a copy in could bring a file of the operator's."""
    (place / "private/sub").mkdir()
    made(cli, on, "box", place)
    for how, folder in planted(cli, place, INWARD).items():
        _, source, options = INWARD[how]
        done = cli("cp", *options, f"{folder}/{source}", "box:/tmp/got")
        assert done.returncode in (1, 7), (how, done)
        assert b"where a sandbox can write" in done.stderr, (how, done)
    found = cli("exec", "box", "--", "sh", "-c", "cat /tmp/got /tmp/got/* 2>/dev/null; true")
    assert b"of the host" not in found.stdout


@pytest.mark.parametrize("how", ["moved", "bind", "bind inside", "moved and bound", "second name"])
def test_what_is_a_workspace_by_another_name(cli: Cli, on: str, place: Path, how: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    made(cli, on, "box", place)
    plant = f"mkdir /workspace/sub; ln -s {place}/private /workspace/sub/x; mkfifo /workspace/sub/fifo; echo y >/tmp/f"
    cli.ok("exec", "box", "--", "sh", "-c", plant)
    (place / "view").mkdir()
    at, mounted = place / "view", None
    if how == "second name":
        os.link(place / "private/secret", place / "ws/sub/second")
        os.chown(place / "ws", UID, UID)
        at = place / "ws/sub/second"
    if "moved" in how:
        (place / "ws").rename(place / "moved")
        at = place / "moved/sub"
    if "bind" in how or "bound" in how:
        source = place / ("moved/sub" if "moved" in how else "ws/sub" if "inside" in how else "ws")
        subprocess.run(["mount", "--bind", source, place / "view"], check=True)
        at, mounted = place / ("view/sub" if how == "bind" else "view"), place / "view"
    try:
        source = at if how == "second name" else at / "x/secret"
        done = cli("cp", str(source), "box:/tmp/got")
        assert (done.returncode, b"of the host" in done.stdout) == ((1 if how == "second name" else 7), False), done
        if how != "second name":
            assert cli("cp", "box:/tmp/f", f"{at}/x/new").returncode == 7
        found = cli("exec", "box", "--", "sh", "-c", "cat /tmp/got 2>/dev/null; true")
        assert b"of the host" not in found.stdout
        untouched(place)
    finally:
        if mounted:
            subprocess.run(["umount", mounted], check=True)
        if "moved" in how:
            (place / "moved").rename(place / "ws")
            cli.ok("kill", "box")


def test_it_is_known_what_a_stopped_sandbox_left(cli: Cli, on: str, place: Path) -> None:
    made(cli, on, "box", place)
    cli.ok("exec", "box", "--", "sh", "-c", f"ln -s {place}/private /workspace/out; mkdir /workspace/real")
    cli.ok("kill", "box")
    made(cli, on, "other", None, "sh", "-c", "mkdir -p /tmp/out; echo x >/tmp/out/job; exec sleep 1000")
    cli.until(lambda: cli("exec", "other", "--", "test", "-e", "/tmp/out/job").returncode == 0, "it made no file")
    assert cli("cp", "other:/tmp/out", f"{place}/ws/").returncode == 7
    assert cli.ok("cp", "other:/tmp/out", f"{place}/ws/real") == b""
    assert (place / "ws/real/out/job").read_text() == "x\n"
    untouched(place)


@pytest.mark.parametrize("rounds", ROUNDS)
def test_a_guest_that_swaps(cli: Cli, on: str, place: Path, rounds: int) -> None:
    made(cli, on, "box", place, "sh", "-c", SWAP % f"{place}/private")
    made(cli, on, "other", None, "sh", "-c", "mkdir -p /tmp/job; echo x >/tmp/job/new; exec sleep 1000")
    cli.until(lambda: cli("exec", "other", "--", "test", "-e", "/tmp/job/new").returncode == 0, "it made no file")
    for _ in range(rounds):
        for target in ("out", "real", "real/job"):
            cli("cp", "other:/tmp/job", f"{place}/ws/{target}")
        cli("cp", f"{place}/ws/out", "other:/tmp/got")
        cli("cp", f"{place}/ws/real", "other:/tmp/got")
        cli("cp", "-L", f"{place}/ws/real/job/secret", "other:/tmp/got2")
        found = cli("exec", "other", "--", "sh", "-c", "cat /tmp/got*/* /tmp/got*/*/* /tmp/got2 2>/dev/null; true")
        assert b"of the host" not in found.stdout
        untouched(place)
    cli.ok("kill", "box")


def test_a_fifo_and_a_link_are_no_spec(cli: Cli, on: str, place: Path) -> None:
    made(cli, on, "box", place)
    cli.ok("exec", "box", "--", "sh", "-c", "mkfifo /workspace/spec.toml; ln -s /etc/passwd /workspace/link.toml")
    done = cli("create", "-f", f"{place}/ws/spec.toml")
    assert (done.returncode, b"not a file" in done.stderr) == (2, True)
    assert cli("create", "-f", f"{place}/ws/link.toml").returncode == 7
    assert b"is over 1 MiB" in cli("create", "-f", "/dev/zero").stderr


def test_all_of_a_sandbox_and_what_is_left_out(cli: Cli, on: str, tmp_path: Path) -> None:
    """``cp NAME:/ DIR`` copied nothing; links that stay inside are kept, an absolute one as a relative one."""
    made(cli, on, "box", None)
    script = "mkdir -p /tmp/d/sub; cd /tmp/d; echo x >file; ln -s /tmp/d/file abs; ln -s ../file sub/rel; ln -s / out"
    cli.ok("exec", "box", "--", "sh", "-c", script)
    done = cli("cp", "box:/tmp/d", str(tmp_path / "d"), "--json")
    assert done.returncode == 1
    assert b"\"left_out\": [\"'d/out' is a link that leads out, to '/'\"]" in done.stdout
    assert [(tmp_path / "d" / name).read_text() for name in ("abs", "sub/rel")] == ["x\n", "x\n"]
    assert os.readlink(tmp_path / "d/abs") == "file"
    if "docker" in on:
        (tmp_path / "all").mkdir()
        done = cli("cp", "box:/", str(tmp_path / "all"))
        assert (tmp_path / "all/bin").is_dir(), (done, list((tmp_path / "all").rglob("*"))[:9])
        assert (tmp_path / "all/etc").is_dir()


def test_holes_stay_holes(cli: Cli, on: str, tmp_path: Path) -> None:
    made(cli, on, "box", None)
    cli.ok("exec", "box", "--", "sh", "-c", "echo x >/tmp/s; truncate -s 50M /tmp/s; echo y >>/tmp/s")
    cli.ok("cp", "box:/tmp/s", str(tmp_path / "s"))
    found = (tmp_path / "s").stat()
    assert found.st_size == (50 << 20) + 2
    assert found.st_blocks * 512 < 1 << 20
    if "bubblewrap" in on:  # the engine unpacks for docker, and writes zeros
        cli.ok("cp", str(tmp_path / "s"), "box:/tmp/again")
        size, blocks = cli.ok("exec", "box", "--", "stat", "-c", "%s %b", "/tmp/again").split()
        assert (int(size), int(blocks) * 512 < 1 << 20) == (found.st_size, True)
        cli.ok("exec", "box", "--", "cmp", "/tmp/s", "/tmp/again")
