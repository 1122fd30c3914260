"""The Host block and the keys that it names."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import CONFIG, Cli
from tests.servers.ssh.conftest import Ssh

from sandbox_console.errors import ConfigError
from sandbox_console.hostfs.guest_writable import NOBODYS
from sandbox_console.servers.ssh.host_block import host_block, write
from sandbox_console.servers.ssh.keys import KeyFolder, private

FILES = {"host_ed25519", "user_ed25519", "user_ed25519.pub", "known_hosts", "lock"}
PROXY = b"proxycommand"


def asked(config: Path, name: str) -> subprocess.CompletedProcess[bytes]:
    """What ssh would do with a name."""
    return subprocess.run(["ssh", "-G", "-F", config, "--", name], capture_output=True, check=False, timeout=30)


def block_of(cli: Cli, tmp_path: Path) -> Path:
    config = tmp_path / "block"
    config.write_bytes(cli.ok("ssh-config"))
    return config


def test_the_keys_are_for_their_owner_alone_and_stay(cli: Cli) -> None:
    before = cli.ok("ssh-config")
    folder = cli.home / "state/ssh"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == FILES
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    kept = (folder / "user_ed25519").read_bytes(), (folder / "host_ed25519").read_bytes()
    assert cli.ok("ssh-config") == before
    assert ((folder / "user_ed25519").read_bytes(), (folder / "host_ed25519").read_bytes()) == kept
    assert kept[0] not in before
    assert (folder / "known_hosts").read_text().startswith("sandbox-console ssh-ed25519 ")


def test_consoles_that_make_keys_at_once_have_the_same(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from sandbox_console.servers.ssh.keys import *\n"
        "keys = KeyFolder(Path(sys.argv[1])); sys.stdin.read(); keys.make(); print(private(keys.user_key))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    for one in started:
        assert one.stdin is not None
        one.stdin.close()
        one.stdin = None
    assert len({one.communicate(timeout=60)[0] for one in started}) == 1
    assert {path.name for path in (tmp_path / "ssh").iterdir()} == FILES


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    keys = KeyFolder(tmp_path)
    keys.make()
    keys.user_key.chmod(0o640)
    with pytest.raises(ConfigError, match=r"others may read .*mode 0640"):
        keys.make()


def test_a_link_in_place_of_a_key_is_not_followed(tmp_path: Path) -> None:
    keys = KeyFolder(tmp_path)
    keys.make()
    elsewhere = tmp_path / "elsewhere"
    keys.host_key.rename(elsewhere)
    keys.host_key.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="cannot be made"):
        keys.make()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ssh").mkdir()
    os.chown(tmp_path / "ssh", 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to"):
        KeyFolder(tmp_path).make()


def test_a_damaged_key_says_what_to_do(tmp_path: Path) -> None:
    keys = KeyFolder(tmp_path)
    keys.make()
    keys.host_key.write_bytes(b"no key")
    with pytest.raises(ConfigError) as caught:
        keys.make()
    assert "is not a private key" in caught.value.message
    assert "mv " in caught.value.hint


def test_the_block_is_for_names_of_sandboxes(cli: Cli, tmp_path: Path) -> None:
    config = block_of(cli, tmp_path)
    for name in ("box.sandbox", "Box_1.2-x.sandbox", "docker:web.sandbox"):
        assert PROXY in asked(config, name).stdout, name
    assert PROXY not in asked(config, "box.example.org").stdout


@pytest.mark.parametrize("char", [*"'`$;&|<>(){}[]!\\"])
def test_a_name_for_the_shell_reaches_no_shell(cli: Cli, tmp_path: Path, char: str) -> None:
    config = block_of(cli, tmp_path)
    assert PROXY not in asked(config, f"a{char}touch x{char}.sandbox").stdout
    assert PROXY not in asked(config, f"a{char}.sandbox").stdout


def test_a_name_like_an_option_reaches_no_program(cli: Cli, tmp_path: Path) -> None:
    assert PROXY not in asked(block_of(cli, tmp_path), "--config=x.sandbox").stdout


def test_a_home_with_spaces_and_percent_signs_works(tmp_path: Path) -> None:
    home = tmp_path / "my 100%h home"
    home.mkdir()
    (home / "config.toml").write_text(CONFIG)
    cli = Cli(home)
    cli.ok("create", "box", "--image", "host", "--", "sleep", "1000")
    try:
        done = Ssh(cli, block_of(cli, tmp_path)).run("box.sandbox", "echo it works")
    finally:
        cli.ok("rm", "--force", "box")
    assert done.stdout == b"it works\n", done


@pytest.mark.parametrize("part", ['"', "\n", "${HOME}", "\\"])
def test_a_home_that_ssh_cannot_be_told_is_refused(tmp_path: Path, part: str) -> None:
    with pytest.raises(ConfigError, match="cannot be written into an ssh configuration"):
        host_block(KeyFolder(tmp_path / part), ["sandbox-console"])


def test_options_are_passed_on(cli: Cli, tmp_path: Path) -> None:
    block = cli.ok("ssh-config", "--backend", "bubblewrap", "--read-only", "--yes").decode()
    assert " --backend bubblewrap --read-only --yes proxy '%n'\n" in block


def test_writing_keeps_what_is_in_the_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "dot ssh/config"
    cli.ok("ssh-config", "--write", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text(file.read_text() + "Host *\n    User me\n")
    file.chmod(0o640)
    once = file.read_text()
    cli.ok("ssh-config", "--write", str(file))
    assert file.read_text() == once
    assert once.endswith("Host *\n    User me\n")
    assert b"user sandbox-default\n" in asked(file, "box.sandbox").stdout
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["config"]


def test_writing_follows_the_users_own_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").write_text("Host a\n")
    (tmp_path / "config").symlink_to(tmp_path / "dotfiles")
    write("Host b\n", tmp_path / "config", NOBODYS)
    assert (tmp_path / "config").is_symlink()
    assert "Host b\n" in (tmp_path / "dotfiles").read_text()


def test_half_a_block_is_not_guessed_at(tmp_path: Path) -> None:
    file = tmp_path / "config"
    write("Host b\n", file, NOBODYS)
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]) + "Host mine\n")
    before = file.read_text()
    with pytest.raises(ConfigError, match="not whole"):
        write("Host c\n", file, NOBODYS)
    assert file.read_text() == before


def test_private_reads_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(ConfigError, match="not a file of yours"):
        private(tmp_path / "key")
