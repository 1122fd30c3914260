"""What the guest of a removed sandbox planted in its workspace is still not followed, until it is forgotten by a command."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.hostfs.test_cp_hostile import made, on, place, untouched

from sandbox_console.errors import ConfigError, Conflict, InvalidSpec
from sandbox_console.hostfs.walk import find
from sandbox_console.model.action import Create, Remove
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import open_console
from sandbox_console.service.reads import removed_workspaces, shared_folders
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.widgets.log.log_save import save_new

__all__ = ["on", "place"]


@pytest.fixture
def left(cli: Cli, on: str, place: Path) -> Path:
    """The place, once a real guest has planted its links and its sandbox was removed; another sandbox, "box", is there."""
    made(cli, on, "gone", place)
    plant = (
        f"cd /workspace; ln -s {place}/private out; ln -s {place}/private/secret file; ln -s {place}/private/new dangling; "
        f"ln -s {place}/private/sandbox.toml sandbox.toml; mkdir real; ln -s {place}/private real/deep"
    )
    cli.ok("exec", "gone", "--", "sh", "-c", plant)
    cli.ok("rm", "--force", "gone")
    made(cli, on, "box", None, "sh", "-c", "echo hello; exec sleep 1000")
    cli.ok("exec", "box", "--", "sh", "-c", "mkdir -p /tmp/out && echo theirs >/tmp/out/secret && echo x >/tmp/job")
    return place


INTO = [
    "cp box:/tmp/out {}/out", "cp box:/tmp/job {}/out/new", "cp box:/tmp/job {}/dangling", "cp box:/tmp/job {}/real/deep/",
    "cp {}/out/secret box:/tmp/", "cp -L {}/file box:/tmp/", "cp {}/real/deep/secret box:/tmp/",
    "create -f {}/file", "create -f {}/out/secret", "create x --image dir:{}/out", "up -f {}/sandbox.toml",
    "up -f {}/out/sandbox.toml", "down -f {}/sandbox.toml", "ssh-config --write {}/dangling",
    "ssh-config --write {}/out/config", "bundle -o {}/out/b box", "bundle -o {}/dangling/b box",
    "audit export -o {}/out/audit",
    "import compose {}/file", "update box -f {}/file", "create other --image host --workspace {}/out",
    "audit verify --folder {}/out", "new-backend mine {}/out/mine", "--config {}/file ls", "--config {}/out/config.toml ls",
]  # fmt: skip


def test_no_command_follows_what_a_removed_guest_planted(cli: Cli, on: str, left: Path) -> None:
    """Before, each of these took the link for the operator's own once the sandbox was gone."""
    (left / "private/sandbox.toml").write_text('name = "planted"\nimage = "host"')
    wrong: dict[str, object] = {}
    for words in [*INTO, *(["images load {}/file"] if "docker" in on else [])]:
        done = cli("--yes", *words.format(f"{left}/ws").split())
        if b"where a sandbox could write" not in done.stderr and b"which a sandbox can write" not in done.stderr:
            wrong[words] = done
    assert not wrong
    (left / "private/sandbox.toml").unlink()
    untouched(left)
    assert cli("show", "other").returncode == cli("show", "planted").returncode == 3
    assert cli("cp", "box:/tmp/out", f"{left}/ws/real/").returncode == 0, "what is no link is written as before"
    (left / "ws/real").chmod(0o777)
    cli.ok("create", "again", *on.split(), "--workspace", f"{left}/ws/real")


def test_a_copy_that_is_mended_by_forgetting(cli: Cli, left: Path) -> None:
    listed = cli.json("forget")
    assert [one["workspace"] for one in listed] == [f"{left}/ws"]
    done = cli("cp", "box:/tmp/job", f"{left}/ws/out/")
    assert f"sandbox-console forget {left}/ws" in done.stderr.decode()
    assert cli("--read-only", "forget", f"{left}/ws").returncode == 4
    assert cli("forget", f"{left}/elsewhere").returncode == 3
    cli.ok("forget", f"{left}/ws")
    cli.ok("cp", "box:/tmp/job", f"{left}/ws/out/")
    assert (left / "private/job").read_text() == "x\n"
    rows = [row for row in cli.json("audit", "ls") if row["action"] == "forget"]
    assert {row.get("outcome") for row in rows} >= {"ok", "denied"}
    assert cli.json("forget") == []


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A workspace with a link out, and a home with the console's state."""
    for name in ("ws/sub", "private", "home"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "private/secret").write_text("of the host")
    (tmp_path / "ws/x").symlink_to(tmp_path / "private")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    return tmp_path


async def removed(place: Path, *names: str) -> None:
    """Make a sandbox for each of these workspaces, and remove it."""
    async with open_console(backends=[FakeBackend([])]) as console:
        for name in names or ("ws",):
            action = Create(SandboxSpec("box", "host", workspace=str(place / name)), "fake", "local")
            ref = (await console.perform(action).result()).ref
            assert ref is not None
            await console.perform(Remove(ref, force=True)).result()


def known(place: Path) -> shared_folders.SharedFolders:
    return shared_folders.everywhere(place / "home/state")


def refused(path: Path, place: Path) -> str:
    with pytest.raises(Conflict) as told:
        find(path, known(place).ground())
    return told.value.message


async def test_a_saved_log_and_a_file_of_the_screen(own):
    await removed(own)
    async with open_console(backends=[FakeBackend([])]) as console:
        for name in ("x/log", "x"):
            with pytest.raises((Conflict, FileExistsError)):
                await save_new(own / "ws" / name, lambda: [b"line"], await console.ground())
    assert os.listdir(own / "private") == ["secret"]


async def test_one_that_was_moved_or_removed_by_another_tool(own):
    fake = FakeBackend([])
    async with open_console(backends=[fake]) as console:
        action = Create(SandboxSpec("box", "host", workspace=str(own / "ws")), "fake", "local")
        await console.perform(action).result()
        fake.sandboxes.clear()
        await console.ground()
    assert "could write until it was removed" in refused(own / "ws/x/secret", own)
    (own / "ws").rename(own / "moved")
    (own / "ws").mkdir()
    (own / "ws/y").symlink_to(own / "private")
    assert "could write until it was removed" in refused(own / "moved/x/secret", own)
    with find(own / "ws/y/secret", known(own).ground()) as found:
        assert found.what is not None, "another folder has its place"


async def test_it_is_recognised_after_a_restart_and_forgotten_when_it_is_gone(own, monkeypatch):
    for name in ("gone", "replaced", "unmounted"):
        (own / name).mkdir()
    await removed(own, "ws", "gone", "replaced", "unmounted")
    kept = own / "home/state/shares.json"
    data = json.loads(kept.read_text())
    data["seen"]["boot"] = "another"
    for one in data["seen"]["removed"].values():
        one["boot"], one["was"] = "another", [[at[0] + 1, *at[1:]] for at in one["was"]]
    data["seen"]["removed"][str(own / "gone")]["since"] = time.time() - 91 * 86_400
    kept.write_text(json.dumps(data))
    for name in ("gone", "replaced", "unmounted"):
        shutil.rmtree(own / name)
    (own / "replaced").mkdir()
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.ground()
    assert set(known(own).removed) == {str(own / "ws"), str(own / "unmounted")}
    assert "could write until it was removed" in refused(own / "ws/x/secret", own)


async def test_a_link_in_place_of_one_is_followed(own):
    """It is the operator who replaced the folder: a guest cannot rename its own workspace."""
    await removed(own)
    (own / "ws").rename(own / "moved")
    (own / "ws").symlink_to(own / "private")
    with find(own / "ws/secret", known(own).ground()) as found:
        assert found.what is not None


async def test_a_new_sandbox_in_one_is_made_unless_a_link_leads_there(own):
    await removed(own)
    async with open_console(backends=[FakeBackend([])]) as console:
        for name in ("ws", "ws/sub"):
            spec = SandboxSpec(name.replace("/", "-"), "host", workspace=str(own / name))
            if name == "ws":
                assert not await console.problems(spec, "fake", "local")
            else:
                await console.perform(Create(spec, "fake", "local")).result()
        (own / "ws/sub/deep").mkdir()
        for name, why in (("x", "could write until it was removed"), ("sub/deep", "which a sandbox can write")):
            spec = SandboxSpec("other", "host", workspace=str(own / "ws" / name))
            with pytest.raises(InvalidSpec, match=why):
                await console.perform(Create(spec, "fake", "local")).result()


async def test_a_configuration_and_programs_that_it_left_are_not_used(own, monkeypatch):
    await removed(own)
    (own / "ws/config.toml").write_text("")
    with pytest.raises(ConfigError, match="which a sandbox can write"):
        async with open_console(backends=[], config_file=own / "ws/config.toml"):
            pass
    monkeypatch.setenv("PATH", f"{own}/ws:/usr/bin")
    async with open_console(backends=[]):
        assert os.environ["PATH"] == "/usr/bin"


async def test_folders_of_other_tools_are_not_remembered(own):
    """A container that ran for a moment with ``-v /opt:/opt`` is no reason to refuse links in /opt for ever."""
    state = own / "home/state"
    state.mkdir()
    shared_folders.change(state, lambda known: {**known, "docker/default": [str(own / "ws")]})
    shared_folders.change(state, lambda known: {**known, "docker/default": []})
    assert known(own).removed == {}


def test_the_list_is_bounded(tmp_path):
    folders = {str(tmp_path / f"w{at}"): removed_workspaces.removed(str(tmp_path), ()) for at in range(3)}
    for path in folders:
        Path(path).mkdir()
    found = {path: removed_workspaces.removed(path, ()) for path in folders}
    assert len(removed_workspaces.kept(found)) == 3
    many = {f"{path}/{at}": one for path, one in found.items() for at in range(400)}
    assert len(removed_workspaces.kept(many)) == removed_workspaces.MOST


SEEN = {
    "seen": [1], "boot": 5, "folders": [1], "given": {"a": 1}, "removed": [1],
}  # fmt: skip


@pytest.mark.parametrize("what", ["link", "fifo", "folder", "garbage", "empty", *SEEN])
async def test_a_damaged_list_is_an_error_until_somebody_has_looked(own, what):
    """It must not be forgotten by itself: from then on, links in all of the workspaces would be followed."""
    await removed(own)
    kept = own / "home/state/shares.json"
    data = json.loads(kept.read_text())
    kept.unlink()
    if what == "link":
        kept.symlink_to(own / "private/secret")
    elif what == "fifo":
        os.mkfifo(kept)
    elif what == "folder":
        kept.mkdir()
    elif what in SEEN:
        (data if what == "seen" else data["seen"])[what] = SEEN[what]
        kept.write_text(json.dumps(data))
    else:
        kept.write_text("{" if what == "garbage" else "")
    before = kept.lstat()
    for attempt in (removed(own), removed(own, "other")):
        with pytest.raises(ConfigError, match="damaged") as told:
            await attempt
        assert str(kept) in told.value.message
        assert "remove the file" in (told.value.hint or "")
    after = kept.lstat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (own / "private/secret").read_text() == "of the host"
    kept.rmdir() if what == "folder" else kept.unlink()
    await removed(own)
    assert "could write" in refused(own / "ws/x/secret", own)
