from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import ROOT, Make, until

from sandbox_console.backends.bubblewrap.stats import processes
from sandbox_console.errors import Conflict, InvalidSpec
from sandbox_console.model.spec import SandboxSpec


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


@pytest.fixture
async def pids(make: Make):
    """The main command, and one that entered later, as the host sees them."""
    box = await make("sh", "-c", "sleep 1000; :")
    process = await box.exec("sleep", "1000")

    def sleeping() -> list[int]:
        found = [pid for pid in processes(box.raw) if Path(f"/proc/{pid}/comm").read_text() == "sleep\n"]
        return found if len(found) == 2 else []

    yield await until(sleeping)
    await process.kill()


async def test_no_process_has_the_hosts_root_any_capability_or_new_privileges(pids) -> None:
    for pid in pids:
        status = _status(pid)
        assert "0" not in status["Uid"].split()
        assert "0" not in status["Gid"].split()
        assert status["Groups"] in ("", status["Gid"].split()[0])
        assert {status[key] for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
        assert status["NoNewPrivs"] == "1"


async def test_every_namespace_is_its_own_also_for_what_enters(pids) -> None:
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        links = {os.readlink(f"/proc/{pid}/ns/{name}") for pid in pids}
        assert len(links) == 1 and os.readlink(f"/proc/self/ns/{name}") not in links, name


async def test_there_is_no_network_but_loopback(make: Make) -> None:
    box = await make()
    assert await box.sh("ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev") == "1\n"
    script = "import socket; s = socket.socket(); s.settimeout(2); s.connect(('192.0.2.1', 80))"
    end, _, err = await box.run("python3", "-c", script)
    assert end.code == 1
    assert b"unreachable" in err


async def test_inside_it_cannot_mount_unshare_or_become_root(make: Make) -> None:
    box = await make()
    for command in ("mount -t tmpfs x /tmp", "unshare -U true", "unshare -m true", "chroot / true"):
        assert (await box.run("sh", "-c", command))[0].code != 0, command


@pytest.mark.skipif(not ROOT, reason="a setuid file of root's console")
async def test_a_setuid_file_left_in_the_workspace_is_harmless_on_the_host(make: Make, workspace: Path) -> None:
    box = await make(workspace=str(workspace))
    await box.sh("cp /usr/bin/id /workspace/id; chmod 6755 /workspace/id")
    planted = workspace / "id"
    mode = planted.stat()
    assert mode.st_mode & 0o6000 == 0o6000, "the guest could plant it"
    assert mode.st_uid != 0
    assert mode.st_gid != 0
    ran = subprocess.run(
        [planted], capture_output=True, text=True, user=12345, group=12345, extra_groups=[], check=True
    )
    assert "euid=0" not in ran.stdout
    assert f"euid={mode.st_uid}" in ran.stdout
    assert "euid" not in await box.sh("/workspace/id"), "nosuid inside"


async def test_the_process_limit_stops_a_fork_bomb(make: Make) -> None:
    box = await make(pids=40)
    before = len(os.listdir("/proc"))
    said = await box.sh("i=0; while [ $i -lt 200 ]; do sleep 100 >/dev/null 2>&1 & i=$((i+1)); done")
    assert "ork" in said or "temporarily" in said
    assert 10 < len(processes(box.raw)) <= 40
    assert (await box.run("/bin/true"))[0].code == 0, "a full sandbox can still be entered"
    assert len(os.listdir("/proc")) < before + 80
    await box.remove()


async def test_limits_hold_for_each_sandbox_apart(make: Make) -> None:
    one, two = await make(pids=30), await make(pids=30)
    await one.sh("i=0; while [ $i -lt 60 ]; do sleep 100 >/dev/null 2>&1 & i=$((i+1)); done")
    assert await two.sh("sh -c 'echo fine'") == "fine\n"


async def test_the_hosts_image_is_read_only_and_usable(make: Make) -> None:
    box = await make()
    assert "Read-only" in await box.sh("touch /usr/x")
    assert await box.sh("echo 3 4 | awk '{print $1+$2}'; python3 -c 'print(40+2)'") == "7\n42\n"
    assert (await box.run("vi", "--version"))[0].code == 0
    assert await box.sh("id -un; hostname; cat /etc/resolv.conf; pwd") == "sandbox\nbox-0\n/home/sandbox\n"
    assert await box.sh("test -s /etc/ssl/certs/ca-certificates.crt && echo yes") == "yes\n"
    assert "shadow" not in await box.sh("ls /etc /root /home")
    assert await box.sh("touch /x ~/x /tmp/x /run/x && echo ok") == "ok\n"


async def test_a_read_only_root_still_has_its_temporary_folders(make: Make) -> None:
    box = await make(read_only_root=True)
    assert "Read-only" in await box.sh("touch /x")
    assert "Read-only" in await box.sh("echo >> /etc/passwd")
    assert await box.sh("touch ~/x /tmp/x /run/x && echo ok") == "ok\n"


async def test_a_folder_is_an_image(make: Make, backend, open_folder: Path) -> None:
    root = open_folder / "root"
    (root / "bin").mkdir(parents=True)
    (root / "bin/busybox").write_bytes(Path("/bin/busybox").read_bytes())
    (root / "bin/busybox").chmod(0o755)
    for name in ("sh", "sleep", "ls", "id", "touch", "cat"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "marker").write_text("mine\n")
    for one in (root, root / "bin"):
        one.chmod(0o755)
    box = await make(image=f"dir:{root}", user="root")
    assert await box.sh("cat /marker; id -u; ls /usr /etc 2>/dev/null") == "mine\n0\n"
    assert "Read-only" in await box.sh("touch /bin/x")
    assert await box.sh("cat /proc/self/status | grep CapEff || busybox grep CapEff /proc/self/status") == (
        "CapEff:\t0000000000000000\n"
    )
    shell = await box.shell()
    await shell.write(b"exit 5\n")
    assert (await shell.wait()).code == 5
    await shell.close()


def test_bad_values_are_told_by_their_field(backend, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "root").symlink_to("/")
    for field, value in (
        ("image", "ubuntu:24.04"), ("image", "dir:relative"), ("image", "dir:/nosuch"), ("image", f"dir:{tmp_path}"),
        ("image", "dir:/"), ("user", "nobody-here"), ("cpus", 4096.0), ("memory_mib", 1 << 40),
        ("workspace", "/nosuch/folder"), ("workspace", f"{tmp_path}/file"), ("workspace", f"{tmp_path}/root"),
    ):  # fmt: skip
        assert list(backend.validate(SandboxSpec("x", **{field: value}))) == [field], (field, value)
    assert not backend.validate(SandboxSpec("x", image="host", workspace=str(tmp_path), user="root"))


async def test_a_workspace_swapped_for_a_link_is_not_mounted(make: Make, open_folder: Path, workspace: Path) -> None:
    box = await make(workspace=str(workspace))
    await box.stop()
    workspace.rename(open_folder / "aside")
    workspace.symlink_to("/etc")
    with pytest.raises(Conflict, match="behind a link"):
        await box.start()


async def test_a_workspace_that_the_sandbox_cannot_write_is_a_clear_error(make: Make, open_folder: Path) -> None:
    closed = open_folder / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(InvalidSpec, match="workspace") as caught:
        await make(workspace=str(closed))
    assert str(closed) in caught.value.message
    assert caught.value.hint.startswith(("chown 2000000000", "chmod"))
    if ROOT:
        os.chown(closed, 2_000_000_007, -1)
        closed.chmod(0o700)
        box = await make(workspace=str(closed))
        assert await box.sh("touch /workspace/x && echo ok") == "ok\n"
        assert (closed / "x").stat().st_uid == 2_000_000_007


@pytest.mark.skipif(not ROOT, reason="an ordinary user has no other ids")
async def test_each_sandbox_of_roots_is_a_user_of_its_own(make: Make) -> None:
    boxes = [await make() for _ in range(3)]
    uids = [_status(box.raw["pid"])["Uid"].split()[0] for box in boxes]
    assert len(set(uids)) == 3


async def test_the_workspace_is_shared_both_ways(make: Make, workspace: Path) -> None:
    (workspace / "in").write_text("from the host")
    (workspace / "in").chmod(0o644)
    box = await make(workspace=str(workspace))
    assert await box.sh("pwd; cat in; echo from inside > out") == "/workspace\nfrom the host"
    assert (workspace / "out").read_text() == "from inside\n"


@pytest.mark.parametrize("name", ["a" * 63, "x.y-z_1", "0"])
async def test_odd_names_and_labels_work(make: Make, name: str) -> None:
    labels = {"k": "\x1b]52;c;evil\x07 [@click=x] \u202e", "ü": "'; rm -rf /"}
    box = await make(name=name, labels=labels)
    assert (await box.show()).labels == labels
    assert await box.sh("hostname") == f"{name}\n"
