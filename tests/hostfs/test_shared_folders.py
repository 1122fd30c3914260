"""What a guest was given stays its ground, wherever it is moved to and whatever leads there."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from sandbox_console.errors import ConfigError, Conflict, InvalidSpec
from sandbox_console.hostfs.files import read_small
from sandbox_console.hostfs.walk import find
from sandbox_console.model.action import Create, Remove, Restart, Start
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import open_console
from sandbox_console.service.reads import shared_folders
from sandbox_console.testing.fake_backend import FakeBackend

ROOT = os.geteuid() == 0
mounting = pytest.mark.skipif(not ROOT, reason="mounts need root")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home with two folders for guests, one of the operator's and a configuration."""
    for name in ("ws", "other", "private", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "private/secret").write_text("of the host")
    (tmp_path / "ws/x").symlink_to(tmp_path / "private")
    for name in ("SANDBOX_CONSOLE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def made(folder, name="box"):
    return Create(SandboxSpec(name, "host", workspace=str(folder)), "fake", "local")


def refused(path, ground):
    with pytest.raises(Conflict, match="where a sandbox can write"):
        find(path, ground)


async def test_a_workspace_that_was_moved(place):
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(made(place / "ws")).result()
        (place / "ws").rename(place / "moved")
        refused(place / "moved/x/secret", await console.ground())
        (place / "ws").mkdir()
        (place / "ws/y").symlink_to(place / "private")
        ground = await console.ground()
        refused(place / "moved/x/secret", ground)
        refused(place / "ws/y/secret", ground)
    async with open_console(backends=[FakeBackend([])]) as console:  # another console, which never saw it at its place
        refused(
            place / "moved/x/secret", shared_folders.everywhere(place / "home/.local/state/sandbox-console").ground()
        )
        roots = (await console.ground()).roots.values()  # its backend says that the sandbox is gone
        assert {root.removed for root in roots} == {True}


async def test_a_folder_that_has_a_removed_ones_inode_is_not_a_guests(place):
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(made(place / "ws")).result()
        kept = place / "home/.local/state/sandbox-console/shares.json"
        said = json.loads(kept.read_text())
        there = (place / "other").stat()
        said["seen"]["folders"][str(place / "ws")].append([there.st_dev, there.st_ino, 1])
        kept.write_text(json.dumps(said))
        (place / "other/y").symlink_to(place / "private")
        assert read_small(place / "other/y/secret", await console.ground(), 99) == b"of the host"
        said["seen"]["boot"] = "another"
        kept.write_text(json.dumps(said))
        assert set(shared_folders.read(kept.parent).seen) == set()


@mounting
@pytest.mark.parametrize("how", ["bind", "overlay", "bound before"])
async def test_what_is_mounted_of_a_moved_workspace(place, how):
    for name in ("view", "tmpfs", "ws/sub"):
        (place / name).mkdir()
    (place / "ws/sub/x").symlink_to(place / "private")
    subprocess.run(["mount", "-t", "tmpfs", "none", place / "tmpfs"], check=True)
    for name in ("tmpfs/u", "tmpfs/w"):
        (place / name).mkdir()
    bind = ["mount", "--bind", place / "ws/sub" if how == "bound before" else place / "moved/sub", place / "view"]
    words = f"lowerdir={place}/moved/sub,upperdir={place}/tmpfs/u,workdir={place}/tmpfs/w"
    overlay = ["mount", "-t", "overlay", "none", "-o", words, place / "view"]
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(made(place / "ws")).result()
        if how == "bound before":
            subprocess.run(bind, check=True)
        (place / "ws").rename(place / "moved")
        if how != "bound before":
            subprocess.run(overlay if how == "overlay" else bind, check=True)
        try:
            refused(place / "view/x/secret", await console.ground())
        finally:
            subprocess.run(["umount", place / "view", place / "tmpfs"], check=True)


@mounting
@pytest.mark.parametrize("name", ["a:b", "a,b", "a\\b", "a b", "a\\:b"])
async def test_an_overlay_of_a_folder_with_a_name_that_is_escaped(place, name):
    (place / "merged").mkdir()
    (place / "tmpfs").mkdir()
    (place / "ws").rename(place / name)
    subprocess.run(["mount", "-t", "tmpfs", "none", place / "tmpfs"], check=True)
    for folder in ("tmpfs/u", "tmpfs/w"):
        (place / folder).mkdir()
    lower = str(place / name).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")
    words = f"lowerdir={lower},upperdir={place}/tmpfs/u,workdir={place}/tmpfs/w"
    subprocess.run(["mount", "-t", "overlay", "none", "-o", words, place / "merged"], check=True)
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(made(place / name)).result()
        try:
            refused(place / "merged/x/secret", await console.ground())
        finally:
            subprocess.run(["umount", place / "merged", place / "tmpfs"], check=True)


async def test_a_workspace_in_anothers_is_none(place):
    """That one's guest could put a link in its place before it is mounted."""
    (place / "ws/sub").mkdir()
    (place / "alias").symlink_to(place / "ws/sub")
    (place / "through").symlink_to(place / "ws/out")
    (place / "ws/out").symlink_to(place / "private")
    fake = FakeBackend([])
    async with open_console(backends=[fake]) as console:
        await console.perform(made(place / "ws")).result()
        await console.perform(made(place / "ws", "same")).result()
        for folder in ("ws/sub", "alias", "through", "ws/x", "ws/sub/../sub"):
            with pytest.raises(InvalidSpec) as told:
                await console.perform(made(place / folder, "other")).result()
            assert "where a sandbox can write" in str(told.value) or "which a sandbox can write" in str(told.value)


@pytest.mark.parametrize("again", [Start, Restart])
async def test_a_guest_that_has_turned_anothers_workspace_into_a_link(place, again):
    (place / "ws/sub").mkdir()
    fake = FakeBackend([])
    async with open_console(backends=[fake]) as console:
        inner = (await console.perform(made(place / "ws/sub", "inner")).result()).ref
        assert inner is not None
        await console.perform(made(place / "ws")).result()
        (place / "ws/sub").rmdir()
        (place / "ws/sub").symlink_to(place / "private")
        with pytest.raises(InvalidSpec, match="where a sandbox can write"):
            await console.perform(again(inner)).result()


@pytest.mark.parametrize("what", ["config", "state", "named by the environment"])
async def test_a_way_that_leads_through_a_workspace(place, monkeypatch, what):
    """Neither the name nor the end of it lies in a workspace, and yet its guest says where it leads."""
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(made(place / "ws")).result()
    (place / "private/config.toml").write_text("")
    (place / "ws/hop").symlink_to(place / "private")
    config, how = place / "home/.config/sandbox-console", {}
    if what == "config":
        config.parent.mkdir()
        config.symlink_to(place / "ws/hop")
    elif what == "state":
        state = place / "home/.local/state/sandbox-console"
        state.rename(place / "private/state")
        (place / "ws/state").symlink_to(place / "private/state")
        state.symlink_to(place / "ws/state")
    else:
        (place / "hop.toml").symlink_to(place / "ws/hop/config.toml")
        monkeypatch.setenv("SANDBOX_CONSOLE_CONFIG", str(place / "hop.toml"))
    with pytest.raises(ConfigError, match="which a sandbox can write") as told:
        async with open_console(backends=[], **how):
            pass
    assert "shares.json" in told.value.hint


async def test_a_folder_of_a_console_with_its_state_elsewhere_is_known(place, monkeypatch):
    async with open_console(backends=[FakeBackend([])]) as console:
        await console.perform(made(place / "ws")).result()
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(place / "apart"))
    async with open_console(backends=[FakeBackend([])]) as console:
        refused(place / "ws/x/secret", await console.ground())


async def test_consoles_that_give_at_once_forget_nothing(place):
    import asyncio

    for at in range(12):
        (place / f"w{at}").mkdir()
    fakes = [FakeBackend([], name=f"fake{at}") for at in range(4)]

    async def give(fake):
        async with open_console(backends=[fake]) as console:
            for at in range(12):
                spec = SandboxSpec(f"box{at}", "host", workspace=str(place / f"w{at}"))
                await console.perform(Create(spec, fake.name, "local")).result()

    await asyncio.gather(*map(give, fakes))
    found = shared_folders.read(place / "home/.local/state/sandbox-console").folders
    assert {key: len(folders) for key, folders in found.items()} == {f"fake{at}/local": 12 for at in range(4)}


async def test_what_is_nobodys_any_more_keeps_its_links(place):
    async with open_console(backends=[FakeBackend([])]) as console:
        ref = (await console.perform(made(place / "ws")).result()).ref
        assert ref is not None
        await console.perform(Remove(ref, force=True)).result()
        (place / "ws").rename(place / "moved")
        with pytest.raises(Conflict, match="could write until it was removed"):
            find(place / "moved/x/secret", await console.ground())
