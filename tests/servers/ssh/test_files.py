"""scp and sftp, both OpenSSH's, without a program for them in the sandbox."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import tarfile
from pathlib import Path
from typing import cast

import pytest
from tests.servers.ssh.conftest import Ssh

from sandbox_console.errors import BackendError
from sandbox_console.servers.ssh.guest import Guest
from sandbox_console.servers.ssh.open_files import Reading


def scp(ssh: Ssh, *words: str | Path) -> subprocess.CompletedProcess[bytes]:
    return ssh.run("-q", *map(str, words), program="scp")


def sftp(ssh: Ssh, *lines: str) -> subprocess.CompletedProcess[bytes]:
    return ssh.run("-q", "-b", "-", "box.sandbox", stdin="\n".join(lines).encode(), program="sftp")


def inside(ssh: Ssh, command: str) -> bytes:
    return ssh.cli.ok("exec", "box", "--", "sh", "-c", command)


def test_a_file_both_ways(ssh: Ssh, box: str, tmp_path: Path) -> None:
    data = os.urandom(5_000_001)
    (tmp_path / "there").write_bytes(data)
    (tmp_path / "there").chmod(0o751)
    done = scp(ssh, "-p", tmp_path / "there", "box.sandbox:/tmp/x")
    assert (done.returncode, done.stderr) == (0, b"")
    assert inside(ssh, "sha256sum < /tmp/x; stat -c %a /tmp/x").split()[::2] == [
        hashlib.sha256(data).hexdigest().encode(),
        b"751",
    ]
    assert inside(ssh, "stat -c %Y /tmp/x") == b"%d\n" % (tmp_path / "there").stat().st_mtime
    done = scp(ssh, "box.sandbox:/tmp/x", tmp_path / "back")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "back").read_bytes() == data
    assert [(row["action"], row["outcome"]) for row in ssh.rows("upload", "download")] == [
        ("download", "ok"),
        ("upload", "ok"),
    ]


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 32768, 262144])
def test_sizes_at_the_edges(ssh: Ssh, box: str, tmp_path: Path, size: int) -> None:
    (tmp_path / "there").write_bytes(os.urandom(size))
    assert scp(ssh, tmp_path / "there", "box.sandbox:/tmp/x").returncode == 0
    assert scp(ssh, "box.sandbox:/tmp/x", tmp_path / "back").returncode == 0
    assert (tmp_path / "back").read_bytes() == (tmp_path / "there").read_bytes()


def test_folders_both_ways(ssh: Ssh, box: str, tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/name with spaces").write_text("one")
    (tmp_path / "d" / ("n" * 200)).write_text("two")
    done = scp(ssh, "-r", tmp_path / "d", "box.sandbox:/tmp/d")
    assert (done.returncode, done.stderr) == (0, b"")
    done = scp(ssh, "-r", "box.sandbox:/tmp/d", tmp_path / "back")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "back/e/name with spaces").read_text() == "one"
    assert (tmp_path / "back" / ("n" * 200)).read_text() == "two"


def test_sftp_looks_and_changes(ssh: Ssh, box: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")
    done = sftp(
        ssh, "cd /tmp", f"put {tmp_path}/f a", "rename a b", "chmod 640 b", "ln -s b link", "mkdir folder", "ls -l", "rm b",
        "rmdir folder", "pwd",
    )  # fmt: skip
    assert done.returncode == 0, done
    assert b"-rw-r-----" in done.stdout
    assert b"Remote working directory: /tmp" in done.stdout
    assert inside(ssh, "ls /tmp") == b"link\n"


def test_times_that_the_protocol_cannot_hold(ssh: Ssh, box: str, tmp_path: Path) -> None:
    inside(ssh, "mkdir /tmp/d; cd /tmp/d; touch -d @-5 before; touch -d @9999999999 after; echo x > now")
    assert sftp(ssh, "ls -1 /tmp/d").stdout.split()[-3:] == [b"/tmp/d/after", b"/tmp/d/before", b"/tmp/d/now"]
    assert scp(ssh, "-rp", "box.sandbox:/tmp/d", tmp_path / "back").returncode == 0
    assert {path.name: int(path.stat().st_mtime) for path in (tmp_path / "back").glob("[ab]*")} == {
        "before": 0, "after": 2**32 - 1,
    }  # fmt: skip


def test_nobody_else_may_write_what_is_new(ssh: Ssh, box: str, tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    (tmp_path / "f").chmod(0o666)
    assert sftp(ssh, "mkdir /tmp/d", f"put {tmp_path}/f /tmp/d/f", f"put -p {tmp_path}/f /tmp/d/g").returncode == 0
    assert inside(ssh, "stat -c %a /tmp/d /tmp/d/f /tmp/d/g") == b"755\n644\n666\n"


def test_relative_paths_begin_where_commands_do(ssh: Ssh, box: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("content")
    assert scp(ssh, tmp_path / "f", "box.sandbox:f").returncode == 0
    assert ssh.run("box.sandbox", "cat f").stdout == b"content"


def test_appending_keeps_what_was_there(ssh: Ssh, box: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    inside(ssh, "printf 01234 > /tmp/f")
    assert sftp(ssh, f"reput {tmp_path}/f /tmp/f").returncode == 0
    assert inside(ssh, "cat /tmp/f") == b"0123456789"
    (tmp_path / "g").write_bytes(b"012")
    assert sftp(ssh, f"reget /tmp/f {tmp_path}/g").returncode == 0
    assert (tmp_path / "g").read_bytes() == b"0123456789"


def test_what_is_no_file_is_not_copied(ssh: Ssh, box: str, tmp_path: Path) -> None:
    inside(ssh, "mkfifo /tmp/fifo; ln -s /tmp/loop /tmp/loop; ln -s /dev/zero /tmp/zero")
    for name in ("fifo", "loop", "zero", "nothing"):
        done = scp(ssh, f"box.sandbox:/tmp/{name}", tmp_path / "x")
        assert done.returncode != 0, name
        assert not (tmp_path / "x").exists()
    assert scp(ssh, ssh.config, "box.sandbox:/nowhere/x").returncode != 0
    assert scp(ssh, ssh.config, "box.sandbox:/tmp/fifo").returncode != 0


def test_a_guests_links_lead_nowhere_but_into_the_guest(ssh: Ssh, box: str, tmp_path: Path) -> None:
    (tmp_path / "canary").write_text("of this machine")
    inside(ssh, f"ln -s {tmp_path}/canary /tmp/link; ln -s / /tmp/root; mkdir /tmp/d; ln -s {tmp_path} /tmp/out")
    done = scp(ssh, "box.sandbox:/tmp/link", tmp_path / "back")
    assert done.returncode != 0
    assert not (tmp_path / "back").exists()
    for path in ("/tmp/root/../../../..", "/../../..", "/tmp/d/../../.."):
        listed = sftp(ssh, f"ls -1 {path}{tmp_path}").stdout
        assert b"canary" not in listed
    assert scp(ssh, ssh.config, "box.sandbox:/tmp/out/x").returncode != 0
    assert not (tmp_path / "x").exists()
    assert scp(ssh, ssh.config, "box.sandbox:/../../../../tmp/y").returncode == 0
    assert inside(ssh, "test -f /tmp/y && echo yes") == b"yes\n"
    inside(ssh, "echo inner > /tmp/d/inner; ln -s d/inner /tmp/good")
    assert scp(ssh, "box.sandbox:/tmp/good", tmp_path / "good").returncode == 0
    assert (tmp_path / "good").read_text() == "inner\n"


def test_odd_names_of_the_guest(ssh: Ssh, box: str, tmp_path: Path) -> None:
    names = ["-rf", "a\nb", "\x1b[31m", "..x", "*", "$(touch pwned)", "\udcff"]
    script = b"import os,sys;os.mkdir('/tmp/d')\nfor n in %r: open('/tmp/d/'+n,'w').write('x')" % names
    ssh.cli.ok("exec", "box", "--", "python3", "-c", script.decode())
    done = scp(ssh, "-r", "box.sandbox:/tmp/d", tmp_path / "back")
    assert done.returncode == 0, done
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == sorted(names)
    assert b"\x1b" not in sftp(ssh, "ls -l /tmp/d").stdout


def test_a_huge_file_is_not_held_here(ssh: Ssh, box: str, tmp_path: Path) -> None:
    inside(ssh, "truncate -s 40G /tmp/huge")
    words = ssh.command("-q", "box.sandbox:/tmp/huge", str(tmp_path / "huge"), program="scp")
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        ssh.cli.until(lambda: _size(tmp_path / "huge") > 30_000_000, "nothing came")
        [proxy] = ssh.proxies()
        status = Path(f"/proc/{proxy}/status").read_text()
        peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
        assert peak < 250_000  # KiB
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    ssh.cli.until(lambda: [row["outcome"] for row in ssh.rows("download")] == ["cancelled"], "it is not on record")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.mark.parametrize("whom", ["scp", "ssh", "proxy"])
def test_half_an_upload_changes_nothing(ssh: Ssh, box: str, tmp_path: Path, whom: str) -> None:
    inside(ssh, "echo before > /tmp/x")
    with (tmp_path / "big").open("wb") as file:
        file.truncate(2_000_000_000)
    words = ssh.command("-q", str(tmp_path / "big"), "box.sandbox:/tmp/x", program="scp")
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    ssh.cli.until(lambda: bool(ssh.proxies()) and _spooled(ssh.proxies()[0]) > 1_000_000, "nothing was sent")
    [proxy] = ssh.proxies()
    if whom == "proxy":
        os.kill(proxy, signal.SIGKILL)
    elif whom == "ssh":
        os.kill(int(Path(f"/proc/{proxy}/stat").read_text().split()[3]), signal.SIGKILL)
    else:
        process.kill()
    process.wait(timeout=30)
    ssh.cli.until(lambda: not ssh.proxies(), "the proxy stayed")
    assert inside(ssh, "cat /tmp/x; ls /tmp") == b"before\nx\n"
    assert not [row for row in ssh.rows("upload") if row["outcome"] == "ok"]
    assert {path.name for path in (ssh.cli.home / "state/ssh").iterdir()} <= {
        "host_ed25519", "user_ed25519", "user_ed25519.pub", "known_hosts", "lock"
    }  # fmt: skip


def _spooled(proxy: int) -> int:
    """The bytes of the nameless file that a proxy has open."""
    for link in Path(f"/proc/{proxy}/fd").iterdir():
        try:
            if "/state/ssh/" in str(link.readlink()):
                return link.stat().st_size
        except OSError:
            continue
    return 0


def test_the_policy_is_obeyed(ssh: Ssh, box: str, tmp_path: Path) -> None:
    inside(ssh, "echo kept > /tmp/x")
    text = (ssh.cli.home / "config.toml").read_text()
    (ssh.cli.home / "config.toml").write_text(text + "[policy]\nread_only = true\n")
    try:
        up, down = scp(ssh, ssh.config, "box.sandbox:/tmp/x"), scp(ssh, "box.sandbox:/tmp/x", tmp_path / "x")
        made = sftp(ssh, "mkdir /tmp/d")
    finally:
        (ssh.cli.home / "config.toml").write_text(text)
    assert up.returncode != 0
    assert b"error: " in up.stderr
    assert down.returncode != 0
    assert made.returncode != 0
    assert inside(ssh, "cat /tmp/x; ls /tmp") == b"kept\nx\n"
    assert {row["outcome"] for row in ssh.rows("upload", "download")} == {"denied"}


def test_nothing_of_this_machine_is_served(ssh: Ssh, box: str, tmp_path: Path) -> None:
    """Every request of SFTP that the base class would carry out on this machine's own files is refused."""
    (tmp_path / "canary").write_text("of this machine")
    for line in (
        f"df {tmp_path}",
        f"ls {tmp_path}",
        f"get {tmp_path}/canary {tmp_path}/x",
        f"ln {tmp_path}/canary /tmp/c",
    ):
        assert sftp(ssh, line).returncode != 0, line
    assert not (tmp_path / "x").exists()
    assert inside(ssh, "ls /tmp") == b""


async def test_an_archive_of_headers_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a Pod the guest's own tar makes the archive."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 512
    block, given = info.tobuf(), 0

    async def exactly(_: Reading, size: int) -> bytes:
        nonlocal given
        given += size
        assert given < 1 << 23
        return block

    monkeypatch.setattr(Reading, "_exactly", exactly)
    with pytest.raises(BackendError, match="too long"):
        await Reading(cast("Guest", None), "/x")._member()
