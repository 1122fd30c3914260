"""Places beside ``cp`` where the console opens, runs or is led by something that a guest may have planted."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
import sysconfig
import tarfile
import time
from pathlib import Path

import platformdirs
import pytest
from tests.alerts.conftest import message
from tests.cli.conftest import CONFIG, Cli
from tests.support.as_user import UID

import sandbox_console
from sandbox_console.__main__ import main
from sandbox_console.errors import Conflict, SecretError
from sandbox_console.hostfs import partial_files
from sandbox_console.hostfs.guest_writable import AROUND, NOBODYS, GuestFolders
from sandbox_console.hostfs.search import files_below
from sandbox_console.hostfs.tar_pack import PackOptions, packed
from sandbox_console.hostfs.walk import find
from sandbox_console.model.action import Create
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.secrets.sources import SecretSource, resolve
from sandbox_console.service import open_console
from sandbox_console.service.alert_options import AlertChannel
from sandbox_console.service.alerts.channels.channel import NotDelivered
from sandbox_console.service.alerts.outbox import send
from sandbox_console.service.config import AuditOptions, Config, ShipOptions
from sandbox_console.service.reads.folder_guard import workspace_problem
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.web.logins import given_token
from sandbox_console.web.options import ServeOptions
from sandbox_console.web.run import run as serve

ROOT = os.geteuid() == 0


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A workspace with a link out, and the console's home beside it."""
    for name in ("ws", "private", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "private/token").write_text("a-token-of-the-operator-" + "x" * 40)
    (tmp_path / "private/token").chmod(0o600)
    (tmp_path / "ws/out").symlink_to(tmp_path / "private")
    (tmp_path / "ws/token").symlink_to(tmp_path / "private/token")
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.fixture
def ground(place):
    return GuestFolders.of([str(place / "ws")])


async def given(place):
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(Create(SandboxSpec("box", "host", workspace=str(place / "ws")), "fake", "local")).result()


@pytest.mark.parametrize("name", ["ws/token", "ws/out/token"])
def test_a_login_token(place, ground, name):
    assert given_token(place / name, {}, NOBODYS)
    with pytest.raises(Conflict, match="where a sandbox can write"):
        given_token(place / name, {}, ground)


@pytest.mark.parametrize("option", ["token_file", "cert", "key"])
async def test_the_files_of_serve(place, option):
    """As ``serve`` reads them: what guests were given is known from the disk."""
    await given(place)
    own = {"cert": place / "private/token"} if option == "key" else {}
    with pytest.raises(Conflict, match="where a sandbox can write"):
        await serve(ServeOptions(**{**own, option: place / "ws/out/token"}), print)


def test_another_log_and_its_key(place):
    cli = Cli(place / "home")
    (cli.home / "config.toml").write_text(CONFIG)
    cli.ok("audit", "verify")
    folder = cli.home / "state/backends/bubblewrap/aaaa"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    spec = SandboxSpec("box", "host", workspace=str(place / "ws")).to_dict()
    (folder / "spec.json").write_text(json.dumps({"spec": spec, "created_at": 1.0, "uid": UID if ROOT else None}))
    (place / "ws/log").mkdir()
    for at in ("ws/log", "ws", "ws/out"):
        done = cli("audit", "verify", "--folder", str(place / at))
        assert done.returncode == 7, done
        assert b"sandbox can write" in done.stderr
    done = cli("audit", "verify", "--public-key", str(place / "ws/token"))
    assert (done.returncode, b"where a sandbox can write" in done.stderr) == (7, True)


async def test_a_program_that_gives_a_secret(place, ground, monkeypatch):
    (place / "ws/get").write_text("#!/bin/sh\necho a-value-of-the-guest\n")
    (place / "ws/get").chmod(0o755)
    (place / "get").symlink_to(place / "ws/get")
    monkeypatch.chdir(place / "ws")
    AROUND.set(ground)
    for program in (f"{place}/ws/get", f"{place}/get", "./get", f"{place}/private/../ws/get"):
        with pytest.raises(SecretError, match="where a sandbox can write"):
            await resolve(["T"], {"T": SecretSource(source=f"cmd:{program}")})


@pytest.mark.parametrize("option", ["otlp_headers", "dsn"])
async def test_what_the_audit_log_is_shipped_with(place, option):
    """A link in place of the file would have sent another file of the operator's to the server as a header."""
    await given(place)
    ship = ShipOptions(**{"otlp": "http://127.0.0.1:9"} | {option: f"file:{place}/ws/token"})
    async with open_console(Config(audit=AuditOptions(ship=ship)), backends=[]) as console:
        with pytest.raises(SecretError, match="where a sandbox can write"):
            await console.audit_log.ship()
        own = await console.audit_log._shipping_secret(option, f"file:{place}/private/token")
        assert own.startswith("a-token-of-the-operator")


async def test_a_program_that_gets_alerts(place, monkeypatch):
    """It ran as the operator whoever had written it, and in the folder one was in, whose .git/config git obeys."""
    (place / "ws/tell").write_text(f"#!/bin/sh\npwd -P >> {place}/private/ran\n")
    (place / "ws/tell").chmod(0o755)
    (place / "tell").symlink_to(place / "ws/tell")
    told = message()
    async with open_console(backends=[FakeBackend([])]) as console:
        spec = SandboxSpec("box", "host", workspace=str(place / "ws"))
        await console.perform(Create(spec, "fake", "local")).result()
        monkeypatch.chdir(place / "ws")
        for program in (f"{place}/ws/tell", f"{place}/tell", "./tell"):
            with pytest.raises(NotDelivered, match="where a sandbox can write"):
                await send(console, AlertChannel(kind="command", command=(program,)), told)
        own = ("sh", "-c", f"pwd -P >> {place}/private/ran")
        await send(console, AlertChannel(kind="command", command=own), told)
    assert (place / "private/ran").read_text() == "/\n"


async def test_a_program_is_not_run_in_a_workspace(place, ground, monkeypatch):
    """What git, and so gh, does in a folder, that folder's .git/config says: a program to run, too."""
    (place / "ws/sub").mkdir()
    AROUND.set(ground)
    for folder, there in (("ws", "/"), ("ws/sub", "/"), ("private", str(place / "private"))):
        monkeypatch.chdir(place / folder)
        [found] = await resolve(["T"], {"T": SecretSource(source='cmd:["sh", "-c", "echo it runs in $(pwd -P)"]')})
        assert found.value == f"it runs in {there}"


def ran(place: Path, *words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """The real command line, with the console's home beside the workspace."""
    command = [sys.executable, "-P", "-m", "sandbox_console", *words]
    return subprocess.run(command, env=os.environ | env, stdin=subprocess.PIPE, capture_output=True, check=False)


@pytest.mark.parametrize("words", ["doctor", "ssh-config", "proxy box"])
async def test_planted_programs_do_not_run(place, words):
    """Python's platform module runs uname, and asyncssh looks for libraries with gcc and ld."""
    await given(place)
    (place / "ws/bin").mkdir()
    for name in ("uname", "gcc", "cc", "ld", "objdump", "ldconfig"):
        (place / "ws/bin" / name).write_text(f"#!/bin/sh\necho {name} >> {place}/private/taken\nexit 1\n")
        (place / "ws/bin" / name).chmod(0o755)
    done = ran(place, *words.split(), PATH=f"{place}/ws/bin:{os.environ['PATH']}")
    assert not (place / "private/taken").exists(), (done, (place / "private/taken").read_text())
    assert b"Traceback" not in done.stderr, done


@pytest.mark.parametrize("verb", ["up", "down"])
@pytest.mark.parametrize("name", ["ws/sandbox.toml", "ws/out/sandbox.toml"])
async def test_up_and_down_take_no_planted_file(place, verb, name):
    """Its place says which folder sandboxes may have unasked, and whose sandboxes ``down`` removes."""
    await given(place)
    (place / "private/sandbox.toml").write_text('name = "other"\nimage = "host"\nworkspace = "."')
    (place / "ws/sandbox.toml").symlink_to(place / "private/sandbox.toml")
    done = ran(place, verb, "--yes", "-f", str(place / name))
    assert (done.returncode, b"where a sandbox can write" in done.stderr) == (7, True), done


@pytest.mark.parametrize("name", ["ws/new", "ws/token", "ws/out/config", "ws/nowhere/config"])
async def test_a_host_block_is_not_written_through_a_link(place, name):
    await given(place)
    (place / "ws/new").symlink_to(place / "private/config")
    (place / "ws/nowhere").symlink_to(place / "private/folder")
    before = (place / "private/token").read_text()
    done = ran(place, "ssh-config", "--write", str(place / name))
    assert (done.returncode, b"where a sandbox can write" in done.stderr) == (7, True), done
    assert os.listdir(place / "private") == ["token"]
    assert (place / "private/token").read_text() == before


async def test_a_socket_is_not_bound_through_a_link(place):
    await given(place)
    with pytest.raises(Conflict, match="where a sandbox can write"):
        await serve(ServeOptions(socket=place / "ws/out/socket", names=("box.example",)), print)


@pytest.mark.skipif(not ROOT, reason="another owner needs root")
async def test_a_secrets_file_with_a_second_name(place):
    os.chown(place / "ws", UID, UID)
    os.link(place / "private/token", place / "ws/second")
    AROUND.set(GuestFolders.of([str(place / "ws")]))
    with pytest.raises(SecretError, match="second name"):
        await resolve(["T"], {"T": SecretSource(source=f"file:{place}/ws/second")})


def test_modules_of_the_folder_one_is_in(place):
    """The demo starts the app as a child: ``python -m`` would look for its modules in the folder one is in first."""
    (place / "ws/sandbox_console").mkdir()
    for name in ("sandbox_console/__init__", "sandbox_console/__main__", "asyncio", "textual"):
        (place / f"ws/{name}.py").write_text(f"open('{place}/private/taken', 'w')")
    code = "from sandbox_console.cli.child_process import running\nwith running(['--version']) as child: child.wait()"
    env = os.environ | {"PYTHONPATH": str(Path(sandbox_console.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=place / "ws", capture_output=True, check=False, env=env
    )
    assert not (place / "private/taken").exists(), done
    assert b"sandbox-console" in done.stdout, done


@pytest.mark.parametrize(
    "what", ["package", "packages", "scripts", "cache", "cache in home", "docker", "docker named", "ssh"]
)
async def test_what_the_console_runs_is_no_workspace(place, monkeypatch, what):
    monkeypatch.setenv("DOCKER_CONFIG", str(place / "dockers"))
    if what in ("cache", "docker", "ssh"):
        monkeypatch.setenv("HOME", str(place / "user"))
        monkeypatch.delenv("DOCKER_CONFIG")
    if what == "cache":
        monkeypatch.delenv("SANDBOX_CONSOLE_HOME")
    folder = {
        "package": Path(sandbox_console.__file__).parents[1], "packages": Path(sysconfig.get_path("purelib")),
        "scripts": Path(sysconfig.get_path("scripts")), "cache": platformdirs.user_cache_path("sandbox-console"),
        "cache in home": place / "home/cache", "docker": place / "user/.docker", "docker named": place / "dockers",
        "ssh": place / "user/.ssh",
    }[what]  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    async with open_console(backends=[FakeBackend([])]) as console:
        assert "is, contains or is inside" in workspace_problem(str(folder), console._shares._own)
        assert workspace_problem(str(folder.parent), console._shares._own)


def deep(top, levels):
    """A folder that is deeper than any path may be long."""
    at = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


async def test_a_folder_that_is_very_deep(place, ground):
    """A descriptor a level: it took all that the process may have, the audit log's too."""
    deep(place / "ws", 1100)
    (place / "ws/z").write_text("behind it")
    left: list[str] = []
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    try:
        with find(place / "ws", ground) as found:
            data = b"".join([chunk async for chunk in packed(found, "x", PackOptions(ground, left.append))])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = tar.getnames()
    assert "x/z" in names
    assert [why for why in left if "folders deep" in why]
    subprocess.run(["rm", "-rf", place / "ws/d"], check=True)


def test_what_a_killed_copy_left_is_swept_however_deep_it_is(place, ground):
    nursery = place / "parts"
    (nursery / "old").mkdir(parents=True)
    deep(nursery / "old", 1100)
    (nursery / "link").symlink_to(place / "private")
    for name in ("old", "link"):
        os.utime(nursery / name, (time.time() - 90000,) * 2, follow_symlinks=False)
    with find(place / "ws/x", GuestFolders(ground.roots, nursery)) as found:
        partial_files.nursery(found.folder, GuestFolders(ground.roots, nursery)).close()
    assert os.listdir(nursery) == []
    assert os.listdir(place / "private") == ["token"]


@pytest.mark.parametrize("planted", ["dangling", "folder", "file", "above"])
async def test_a_new_backend_is_not_written_through_a_link(place, planted):
    """``new-backend`` in a workspace: a dangling link was no file that exists, and was written through."""
    await given(place)
    folder = place / ("ws/out/new" if planted == "folder" else "ws/mine")
    if planted != "folder":
        folder.mkdir()
    if planted == "above":
        folder = place / "ws/mine/sub/deep"
        (place / "ws/mine/sub").symlink_to(place / "private")
    else:
        (place / "ws/mine.py").symlink_to(place / "private")
    if planted in ("dangling", "file"):
        (folder / "mine.py").symlink_to(place / ("private/new.py" if planted == "dangling" else "private/token"))
    assert main(["new-backend", "mine", str(folder)]) in (2, 7)
    assert [one.name for one in (place / "private").iterdir()] == ["token"]
    assert "of-the-operator" in (place / "private/token").read_text()
    assert main(["new-backend", "mine", str(place / "ws/other/deep")]) == 0
    assert (place / "ws/other/deep/mine.py").exists()


@pytest.mark.parametrize("planted", ["link", "dangling", "on the way", "fifo"])
async def test_a_commands_files_of_the_python_api(place, planted):
    """``exec(stdin=Path, stdout=Path)`` was opened as any path: out to a file of the operator's, in from one."""
    target = {"link": "token", "dangling": "new"}.get(planted, "")
    path = place / "ws/file"
    if planted == "fifo":
        os.mkfifo(path)
    elif planted == "on the way":
        path = place / "ws/out/token"
    else:
        path.symlink_to(place / "private" / target)
    spec = SandboxSpec("box", "host", workspace=str(place / "ws"))
    async with sandbox_console.open_console(backends=[FakeBackend([])]) as console, console.create(spec) as box:
        for how in ({"stdout": path}, {"stderr": path}, {"stdin": path}):
            with pytest.raises((Conflict, OSError)):
                await box.exec(["cat"], **how)
        made = place / "ws/made"
        made.write_text("older and longer")
        await box.exec(["echo", "x"], stdout=made)
        assert made.read_text() == "x\n"
    assert [one.name for one in (place / "private").iterdir()] == ["token"]
    assert "of-the-operator" in (place / "private/token").read_text()


def test_a_search_for_leaks_follows_nothing_and_waits_for_nobody(place, ground):
    """A folder became a link to another one while it was searched; a FIFO in place of a file held it up for ever."""
    (place / "ws/sub/below").mkdir(parents=True)
    (place / "ws/sub/below/file").write_text("theirs")
    os.mkfifo(place / "ws/fifo")
    found = dict(files_below(place / "ws", place / "ws/sub/none", ground))
    assert [Path(one).name for one in found] == ["file"]
    found[str(place / "ws/sub/below/file")].close()
    assert not [*files_below(place / "ws", place / "ws/sub", ground)]
    for name in ("fifo", "token", "out", "out/token"):
        [(_, why)] = files_below(place / "ws" / name, place, ground)
        assert isinstance(why, str), name
    top = files_below(place / "ws", place / "none", ground)
    (place / "ws/a").mkdir()
    (place / "ws/a/file").write_text("theirs")
    (place / "ws/b").mkdir()
    path, file = next(top)
    file.close()
    assert path == str(place / "ws/a/file")
    (place / "ws/b").rmdir()
    (place / "ws/b").symlink_to(place / "private")
    assert [Path(path).parent.name for path, _ in top] == ["below"]
