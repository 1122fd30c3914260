"""cp, top, events, inspect and attach on real sandboxes, as processes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from pathlib import Path

from tests.cli.conftest import Cli
from tests.support.require import requires

pytestmark = requires("bubblewrap")


def test_a_folder_goes_in_and_comes_out_as_it_was(cli: Cli, box: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "binary").write_bytes(bytes(range(256)) * 1000)
    (source / "empty").touch()
    (source / "run").write_text("#!/bin/sh\necho ran\n")
    (source / "run").chmod(0o755)
    (source / "link").symlink_to("deep/er/binary")
    (source / "od\nd \x1b[31m").write_text("odd")
    assert cli("cp", str(source), f"{box}:/tmp").returncode == 0
    assert cli.ok("exec", box, "--", "/tmp/source/run") == b"ran\n"
    [told] = cli.json("cp", f"{box}:/tmp/source", str(tmp_path / "back"))
    assert told["skipped"] == 0
    assert told["bytes"] > 256_000
    assert subprocess.run(["diff", "-r", source, tmp_path / "back"], check=False).returncode == 0
    assert (tmp_path / "back" / "link").is_symlink()
    assert (tmp_path / "back" / "run").stat().st_mode & 0o111
    actions = [(row["action"], row["outcome"]) for row in reversed(cli.json("audit", "ls"))]
    assert [one for one in actions if one[0] in ("upload", "download")] == [("upload", "ok"), ("download", "ok")]


def test_a_big_file_and_standard_streams(cli: Cli, box: str, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(1 << 20) * 20)
    cli.ok("cp", str(big), f"{box}:/tmp/there")
    out = cli.ok("cp", f"{box}:/tmp/there", "-")
    with tarfile.open(fileobj=io.BytesIO(out)) as tar:
        kept = tar.extractfile("there")
        assert kept is not None
        assert hashlib.sha256(kept.read()).digest() == hashlib.sha256(big.read_bytes()).digest()
    again = cli("cp", "-", f"{box}:/home/sandbox", stdin=out)
    assert again.returncode == 0, again.stderr
    assert cli.ok("exec", box, "--", "cmp", "/tmp/there", "/home/sandbox/there") == b""


def test_sparse_files_stay_sparse(cli: Cli, box: str, tmp_path: Path) -> None:
    holes, out = tmp_path / "holes", tmp_path / "out"
    with holes.open("wb") as file:
        file.seek(50 << 20)
        file.write(b"x")
        file.truncate(64 << 20)
    cli.ok("cp", str(holes), f"{box}:/tmp/holes")
    assert int(cli.ok("exec", box, "--", "du", "-k", "/tmp/holes").split()[0]) < 1024
    cli.ok("cp", f"{box}:/tmp/holes", str(out))
    assert out.stat().st_blocks * 512 < 1 << 20
    assert out.read_bytes() == holes.read_bytes()


def test_what_is_no_file_and_no_folder_is_refused_alone(cli: Cli, box: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for words in ((str(tmp_path / "pipe"), f"{box}:/tmp"), (f"{box}:/dev/zero", str(tmp_path))):
        done = cli("cp", *words)
        assert (done.returncode, b"neither a file" in done.stderr, b"exec" in done.stderr) == (2, True, True)
    assert [row for row in cli.json("audit", "ls") if row["action"] in ("upload", "download")] == []


PARTLY = """
cd /tmp; mkdir -p d/shut d/open; echo x >d/open/file; echo y >d/no; mkfifo d/pipe; chmod 0 d/no d/shut
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("d/sock")'
"""


def test_what_can_be_copied_is_and_each_member_that_is_not_is_named(cli: Cli, box: str, tmp_path: Path) -> None:
    cli.ok("exec", box, "--", "sh", "-c", PARTLY)
    done = cli("cp", f"{box}:/tmp/d", str(tmp_path), "--json")
    assert done.returncode == 1, done.stderr
    [told] = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(told["left_out"]) == [
        "'d/no' cannot be read: Permission denied",
        "'d/pipe' is neither a file, a folder nor a link",
        "'d/shut' cannot be read: Permission denied",
        "'d/sock' is a socket",
    ]
    assert (tmp_path / "d/open/file").read_text() == "x\n"
    assert sorted(one.name for one in (tmp_path / "d").iterdir()) == ["open", "shut"]
    shutil.rmtree(tmp_path / "d")
    done = cli("cp", f"{box}:/tmp/d", str(tmp_path))
    assert (done.returncode, done.stderr.count(b"skipped: ")) == (1, 4)
    assert b"'d/no' cannot be read" in done.stderr
    for path in ("/tmp/d/no", "/tmp/d/shut"):  # what was asked for by name is not copied in part
        assert cli("cp", f"{box}:{path}", str(tmp_path)).returncode == 7


def test_a_tar_on_stdout_names_what_is_not_in_it(cli: Cli, box: str) -> None:
    cli.ok("exec", box, "--", "sh", "-c", PARTLY)
    for options in ((), ("--json",)):
        done = cli("cp", f"{box}:/tmp/d", "-", *options)
        assert done.returncode == 1, done.stderr
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
            assert {"d/open/file", "d/pipe"} < set(tar.getnames())
        if options:
            left_out = json.loads(done.stderr)["left_out"]
        else:
            left_out = [line.removeprefix("skipped: ") for line in done.stderr.decode().splitlines()]
        assert sorted(left_out) == [
            "'d/no' cannot be read: Permission denied",
            "'d/shut' cannot be read: Permission denied",
            "'d/sock' is a socket",
        ]
    assert cli("cp", f"{box}:/tmp/d/open", "-").returncode == 0


def test_all_of_a_sandbox_is_copied_but_for_what_is_the_kernels(cli: Cli, tmp_path: Path) -> None:
    root = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="sandbox-console-test-"))
    try:
        (root / "bin").mkdir()
        shutil.copy("/bin/busybox", root / "bin/sh")
        for one in (root, root / "bin", root / "bin/sh"):
            one.chmod(0o755)
        cli.ok("create", "small", "--image", f"dir:{root}", "--", "/bin/sh", "-c", "while :; do sleep 9; done")
        for target, options in (("one", ["--json"]), ("two", [])):
            (tmp_path / target).mkdir()
            done = cli("cp", "small:/", str(tmp_path / target), *options)
            assert done.returncode == 1, done.stderr
            for name in (b"./dev", b"./proc"):
                assert b"'" + name + b"' is the kernel's" in done.stdout + done.stderr
            assert (tmp_path / target / "bin/sh").stat().st_size == Path("/bin/busybox").stat().st_size
    finally:
        shutil.rmtree(root)


def test_what_a_hostile_sandbox_made_stays_in_its_place(cli: Cli, box: str, tmp_path: Path) -> None:
    script = "mkdir /tmp/d; cd /tmp/d; ln -s /etc/passwd abs; ln -s ../../../../etc up; echo ok >good; chmod 4777 good; mkfifo f"
    cli.ok("exec", box, "--", "sh", "-c", script)
    done = cli("cp", f"{box}:/tmp/d", str(tmp_path / "d"))
    assert done.returncode == 1
    assert done.stderr.count(b"skipped: ") == 3
    assert [one.name for one in (tmp_path / "d").iterdir()] == ["good"]
    assert (tmp_path / "d" / "good").stat().st_mode & 0o7022 == 0


def test_a_copy_that_is_interrupted_leaves_nothing(cli: Cli, box: str, tmp_path: Path) -> None:
    cli.ok("exec", box, "--", "sh", "-c", "head -c 300000000 /dev/zero >/tmp/big")
    out = tmp_path / "out"
    out.mkdir()
    with cli.start("cp", f"{box}:/tmp/big", str(out)) as process:
        cli.until(lambda: any(out.iterdir()), "it did not begin")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert list(out.iterdir()) == []
    [row] = cli.json("audit", "ls", "--action", "download")
    assert row["outcome"] == "cancelled"


def test_looks_into_a_real_sandbox(cli: Cli, box: str) -> None:
    commands = [one["command"] for one in cli.json("top", box)]
    assert any("sleep" in one for one in commands)
    assert [one["what"] for one in cli.json("events", box)][:2] == ["create", "start"]
    [raw] = cli.json("inspect", box)
    assert raw["raw"]["state"] == "running"
    assert cli("diff", box).returncode == 8
    assert cli("commit", box, "x").returncode == 8
    assert cli.ok("rename", box, "renamed") == b"renamed\n"
    assert cli.ok("rename", "renamed", box) == f"{box}\n".encode()


def test_events_are_followed_until_ctrl_c(cli: Cli, box: str) -> None:
    with cli.start("events", box, "-f", "--json", stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b'"create"' in process.stdout.readline()
        assert b'"start"' in process.stdout.readline()
        cli.ok("pause", box)
        assert b'"pause"' in process.stdout.readline()
        cli.ok("resume", box)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


def test_attach_gives_the_output_and_the_code(cli: Cli) -> None:
    script = "while [ ! -e /tmp/go ]; do echo tick; sleep 0.1; done; echo bye; exit 5"
    cli.ok("create", "job", "--image", "host", "--", "sh", "-c", script)
    with cli.start("attach", "job") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"tick\n"
        cli.ok("exec", "job", "--", "touch", "/tmp/go")
        out, _ = process.communicate(timeout=60)
    assert out.endswith(b"tick\nbye\n")
    assert process.returncode == 5
    assert cli("attach", "job").returncode == 125
    cli.ok("rm", "job", "--force")
