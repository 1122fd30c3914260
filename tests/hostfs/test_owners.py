"""A configuration or a state folder that another user of this machine could change is not used."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.support import as_user
from tests.support.as_user import UID
from tests.support.require import missing

from sandbox_console.errors import ConfigError
from sandbox_console.hostfs.owners import another_hand
from sandbox_console.service import open_console
from sandbox_console.service.config import LONGEST

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="another owner needs root")


@pytest.fixture
def home(monkeypatch):
    """A home folder out of pytest's, whose parents are ours alone."""
    home = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="sandbox-console-test-"))
    (home / ".config/sandbox-console").mkdir(parents=True)
    (home / ".config/sandbox-console/config.toml").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SUDO_UID", raising=False)
    for name in ("SANDBOX_CONSOLE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "SANDBOX_CONSOLE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    yield home
    shutil.rmtree(home)


async def opened():
    async with open_console(backends=[]):
        pass


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o646])
async def test_a_config_for_all_to_write(home, mode):
    config = home / ".config/sandbox-console/config.toml"
    config.chmod(mode)
    with pytest.raises(ConfigError, match="every user may write") as told:
        await opened()
    assert str(config) in told.value.message
    assert "chmod go-w" in told.value.hint


@root_only
async def test_a_group_of_others(home):
    config = home / ".config/sandbox-console/config.toml"
    config.chmod(0o664)
    await opened()  # root's own group, as a umask of 002 leaves it
    os.chown(config, 0, UID)
    with pytest.raises(ConfigError, match="others of its group may write"):
        await opened()
    config.chmod(0o644)
    await opened()


@pytest.mark.parametrize("name", [".config/sandbox-console", ".config", "."])
async def test_a_folder_above_it(home, name):
    await opened()
    (home / name).chmod(0o777)
    with pytest.raises(ConfigError, match="every user may write"):
        await opened()
    (home / name).chmod(0o1777)  # where only owners may rename
    await opened()


@root_only
@pytest.mark.parametrize("name", [".config/sandbox-console/config.toml", ".config", ".local/state/sandbox-console"])
async def test_another_owner(home, name, monkeypatch):
    await opened()
    os.chown(home / name, UID, UID)
    with pytest.raises(ConfigError, match=f"belongs to .*{UID}"):
        await opened()
    monkeypatch.setenv("SUDO_UID", str(UID))  # who became root by sudo
    await opened()


@root_only
async def test_a_link_and_what_it_leads_to(home):
    config, real = home / ".config/sandbox-console/config.toml", home / "dotfiles/console.toml"
    real.parent.mkdir()
    config.rename(real)
    config.symlink_to(real)
    await opened()
    real.chmod(0o666)
    with pytest.raises(ConfigError, match=r"every user may write .*console\.toml"):
        await opened()
    real.chmod(0o644)
    os.chown(config, UID, UID, follow_symlinks=False)
    with pytest.raises(ConfigError, match="belongs to"):
        await opened()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
async def test_state_for_others_to_write(home, mode, monkeypatch):
    state = home / "apart/state"
    state.mkdir(parents=True)
    state.chmod(mode)
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(home / "apart"))
    if mode == 0o770:
        if os.geteuid() != 0:
            pytest.skip("another group needs root")
        os.chown(state, 0, UID)
    with pytest.raises(ConfigError, match="the state folder"):
        await opened()


async def test_what_is_made_is_ours_whatever_the_umask(home, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(home / "a/b"))
    before = os.umask(0)
    try:
        await opened()
    finally:
        os.umask(before)
    assert another_hand(home / "a/b/state") == ""
    assert (home / "a").stat().st_mode & 0o777 == 0o700


async def test_a_config_that_never_ends(home):
    config = home / ".config/sandbox-console/config.toml"
    config.unlink()
    config.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="it is not a file"):
        await opened()
    config.unlink()
    (home / "long.toml").write_bytes(b"#" * (LONGEST + 1))
    config.symlink_to(home / "long.toml")
    with pytest.raises(ConfigError, match="longer than"):
        await opened()
    config.unlink()
    config.symlink_to("/dev/null")
    await opened()


@root_only
@pytest.mark.skipif(bool(missing("user")), reason=missing("user"))
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_as_an_ordinary_user():
    done = as_user.run("tests/hostfs", "-m", "not slow", timeout_s=800)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
