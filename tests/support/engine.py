"""A Docker engine of our own, in a network and mount namespace of its own.

Another engine of this machine is not touched: a second dockerd without a namespace would take the first one's
bridge away. It is stopped by its own pidfile, with its containerd and every shim of its containers.
As a program it starts one with the test images and prints its DOCKER_HOST, or ends it:
``python -m tests.support.engine start|stop FOLDER`` (a short path: a Unix socket's is at most 107 bytes).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.require import missing

IMAGE = "sandbox-console-test:busybox"
SHELLLESS = "sandbox-console-test:no-shell"
START_S = 30.0


class DockerEngine:
    """One private engine: start, crash, stop; everything it keeps is under ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "docker.sock"
        self.data = folder / "data"
        self._pidfile = folder / "docker.pid"
        self._log = folder / "dockerd.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start it, or start it again, and wait until it answers."""
        for name in ("data", "exec"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "none.json").write_text("{}")  # not this machine's /etc/docker/daemon.json
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(self._answers, START_S, f"dockerd did not come up; see {self._log}")

    def crash(self) -> None:
        """kill -9: its socket stays behind, its containerd dies with it, its containers live on."""
        assert self._process is not None
        os.kill(int(self._pidfile.read_text()), signal.SIGKILL)
        self._process.wait()
        # Where process 1 does not reap, the dead containerd stays as a zombie, which a new dockerd takes for alive.
        (self.folder / "exec/containerd/containerd.pid").unlink(missing_ok=True)

    def halt(self) -> None:
        """SIGTERM, as a service manager stops it: its containers live on, its socket goes."""
        assert self._process is not None
        os.kill(self.pid, signal.SIGTERM)
        self._process.wait()
        until(lambda: not self._containerd_runs(), START_S, "its containerd did not end")

    def freeze(self) -> None:
        os.kill(int(self._pidfile.read_text()), signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(int(self._pidfile.read_text()), signal.SIGCONT)

    def stop(self) -> None:
        """End it, also one that another process started, with every process of its containers; remove its files."""
        with contextlib.suppress(OSError, ValueError):
            pid = int(self._pidfile.read_text())
            self._remove_all()
            os.kill(pid, signal.SIGTERM)
            self._wait_gone(pid)
        for pid in self._shims():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._unmount()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        return int(self._pidfile.read_text())

    def docker(self, *words: str, stdin: bytes | None = None) -> str:
        """The docker CLI against it; raises with its stderr."""
        done = subprocess.run(["docker", "-H", self.url, *words], input=stdin, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().strip()

    def said(self) -> str:
        """What it logged."""
        return self._log.read_text(errors="replace")

    def inspect(self, name: str) -> dict[str, Any]:
        return json.loads(self.docker("inspect", name))[0]

    def build_images(self) -> None:
        self.docker("import", "-c", 'CMD ["/bin/sh"]', "-", IMAGE, stdin=busybox_tree())
        self.docker("import", "-c", 'CMD ["/bin/sleep", "1000"]', "-", SHELLLESS, stdin=shellless_tree())

    def _wait_gone(self, pid: int) -> None:
        deadline = time.monotonic() + 15
        while self._alive(pid):
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline += 15
            time.sleep(0.05)

    def _alive(self, pid: int) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        return False

    def _command(self) -> list[str]:
        return [
            *("unshare", "--net", "--mount", "--propagation", "slave"),
            # A loopback of its own, for a registry beside it.
            *("sh", "-c", 'busybox ip link set lo up; exec "$@"', "sh", "dockerd"),
            *("--data-root", str(self.data), "--exec-root", str(self.folder / "exec")),
            *("--host", self.url, "--pidfile", str(self._pidfile), "--config-file", str(self.folder / "none.json")),
            *("--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"),
            *("--live-restore", "--log-level", "warn"),
        ]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        return subprocess.run(["docker", "-H", self.url, "version"], capture_output=True, check=False).returncode == 0

    def _remove_all(self) -> None:
        with contextlib.suppress(AssertionError):
            if ids := self.docker("ps", "-aq").split():
                self.docker("rm", "-fv", *ids)

    def cpu_s(self) -> float:
        """CPU seconds of dockerd, its containerd and their shims so far."""
        ticks = 0
        for pid in [self.pid, *self._shims()]:
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def _containerd_runs(self) -> bool:
        # As a zombie, where process 1 does not reap, it has no arguments any more.
        return any(Path(f"/proc/{pid}/comm").read_text().strip() == "containerd" for pid in self._shims())

    def _shims(self) -> list[int]:
        """Shims and containerd of this engine and of no other: each has its folder among its arguments."""
        mark = str(self.folder).encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and int(entry.name) != os.getpid():
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if b"containerd" in words[0] and any(mark in word for word in words):
                        found.append(int(entry.name))
        return found

    def _unmount(self) -> None:
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            target = line.split()[1]
            if target.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", target], capture_output=True, check=False)


def until(ready: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Poll; fails with ``otherwise``."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)


def busybox_tree() -> bytes:
    """A root filesystem of busybox-static with a user 1000, as a tar."""
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    applets = subprocess.run([busybox, "--list"], capture_output=True, check=True).stdout.decode().split()
    tree = _Tree()
    tree.file("bin/busybox", busybox.read_bytes(), 0o755)
    for applet in applets:
        if applet != "busybox":
            tree.link(f"bin/{applet}", "busybox")
    tree.folders()
    return tree.bytes()


def shellless_tree() -> bytes:
    """A root filesystem with three programs and no shell: busybox runs one applet under that applet's name."""
    busybox = Path(shutil.which("busybox") or "/bin/busybox").read_bytes()
    tree = _Tree()
    for applet in ("sleep", "env", "cat"):
        tree.file(f"bin/{applet}", busybox, 0o755)
    tree.folders()
    return tree.bytes()


class _Tree:
    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115 - closed in bytes()

    def file(self, name: str, data: bytes, mode: int) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(data), mode
        self._tar.addfile(info, io.BytesIO(data))

    def link(self, name: str, target: str) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(info)

    def folder(self, name: str, mode: int, owner: int = 0) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, mode, owner, owner
        self._tar.addfile(info)

    def folders(self) -> None:
        for name in ("proc", "sys", "dev", "etc", "root", "run", "var", "home"):
            self.folder(name, 0o755)
        self.folder("tmp", 0o1777)
        self.folder("home/user", 0o755, 1000)
        self.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/home/user:/bin/sh\n", 0o644)
        self.file("etc/group", b"root:x:0:\nuser:x:1000:\n", 0o644)

    def bytes(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()


@contextlib.contextmanager
def private_engine() -> Iterator[DockerEngine]:
    """A running engine with the test images, gone at the end."""
    # A short path: a Unix socket's is at most 107 bytes, and containerd's shims add to it.
    engine = DockerEngine(Path(tempfile.mkdtemp(prefix="sc-docker-", dir="/tmp")))
    try:
        engine.start()
        engine.build_images()
        yield engine
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """The engine of this test session."""
    if reason := missing("docker"):
        pytest.skip(f"docker: {reason}")
    with private_engine() as engine:
        yield engine


if __name__ == "__main__":
    private = DockerEngine(Path(sys.argv[2]).resolve())
    if sys.argv[1] == "stop":
        private.stop()
    else:
        private.start()
        private.build_images()
        sys.stdout.write(f"DOCKER_HOST={private.url}\n")
