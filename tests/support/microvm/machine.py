"""One machine: QEMU, what it shares with this host, and the door to its agent."""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.support.microvm.agent import PORT
from tests.support.microvm.parts import HERE, MachineError, build, cache

BOOT_S = 120.0
LOOK_S = 5.0
SILENT_S, ANSWER_S = 60.0, 60.0
"""A command that says nothing for so long may be in a kernel that hangs: the agent is asked, and given so long."""

GIB = 1024**3
MEMORY_GIB = 3
"""More than a dozen microVMs of the tests at once."""

DEAD = 99
"""The exit code of a command whose machine died."""

Sink = Callable[[bytes, bytes], None]


class Machine:
    """A machine called ``name``; what it keeps is under ``folder`` until it is removed.

    It reaches nothing of this host's network, but with ``sees_host`` the host's loopback, at 10.0.2.2. With two
    ``processors`` its kernel panics or hangs after 10 to 25 microVMs, with one never in 70: two are for a single one.
    """

    def __init__(self, name: str, *, sees_host: bool = False, processors: int = 1) -> None:
        self._processors = processors
        self._restrict = "off" if sees_host else "on"
        self.folder = cache() / f"machine-{name}"
        self.share = self.folder / "share"
        self._pidfile = self.folder / "qemu.pid"
        self._serial = self.folder / "serial.log"

    def up(self) -> None:
        """Boot, and wait until its agent answers. Raises MachineError with the end of its console."""
        self.down()
        self.share.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self._furnish(port)
        parts = build()
        with (self.folder / "qemu.log").open("wb") as log:
            process = subprocess.Popen(
                self._command(parts.kernel, parts.initrd, port), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._pidfile.write_text(str(process.pid))
        deadline = time.monotonic() + BOOT_S
        while not self._answers():
            if process.poll() is not None or time.monotonic() > deadline:
                self.down()
                raise MachineError(f"the machine did not come up:\n{self.console()[-2000:]}")
            time.sleep(0.2)

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str | None = None,
        stdin: bool = False, timeout_s: float | None = None, sink: Sink | None = None,
    ) -> int:  # fmt: skip
        """Run a command inside to its end; gives its exit code, or DEAD where machine or time ran out."""
        with self.connect(argv, env=env, cwd=cwd, timeout_s=10) as door:
            door.settimeout(None)
            if stdin:
                threading.Thread(target=_feed, args=(door,), daemon=True).start()
            else:
                door.sendall(b"i" + struct.pack(">I", 0))
            return self._relay(door, sink or _print, time.monotonic() + timeout_s if timeout_s else None)

    def connect(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None, cwd: str | None, timeout_s: float,
        tty: tuple[int, int] | None = None,
    ) -> socket.socket:  # fmt: skip
        """A connection to a command that was started inside, on a terminal of ``tty`` rows and columns if given."""
        door = socket.create_connection(("127.0.0.1", self._port()), timeout=timeout_s)
        token = (self.share / "token").read_text()
        asked = {"token": token, "argv": list(argv), "env": dict(env or {}), "cwd": cwd, "tty": tty}
        door.sendall(json.dumps(asked).encode() + b"\n")
        return door

    def down(self) -> None:
        """End it and remove its scratch disk; its shared folder and logs stay."""
        with contextlib.suppress(OSError, ValueError):
            pid = int(self._pidfile.read_text())
            if self._is_ours(pid):
                os.kill(pid, signal.SIGKILL)
                _gone(pid)
        for left in (self._pidfile, self.folder / "scratch.img"):
            left.unlink(missing_ok=True)

    def remove(self) -> None:
        """End it and remove all that it kept."""
        self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def alive(self) -> bool:
        """Whether its QEMU runs."""
        try:
            return self._is_ours(int(self._pidfile.read_text()))
        except (OSError, ValueError):
            return False

    def console(self) -> str:
        """What its kernel and init said."""
        return self._serial.read_text(errors="replace") if self._serial.exists() else ""

    def _furnish(self, port: int) -> None:
        compileall.compile_dir(HERE.parents[2] / "src", quiet=2)  # what is compiled inside is gone with the machine
        for name in ("init.sh", "agent.py"):
            shutil.copyfile(HERE / name, self.share / name)
        python = self.share / "python"
        python.unlink(missing_ok=True)
        python.symlink_to(Path(sys.executable).resolve())
        (self.share / "under-tmp").write_text("".join(f"{folder}\n" for folder in _under_tmp()))
        (self.share / "token").touch(0o600)
        (self.share / "token").write_text(secrets.token_hex(16))
        (self.folder / "port").write_text(str(port))
        self._serial.write_text("")
        scratch = self.folder / "scratch.img"
        with scratch.open("wb") as disk:
            disk.truncate(12 << 30)
        mkfs = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "mkfs.ext4"
        options = ["-q", "-F", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard"]
        subprocess.run([mkfs, *options, str(scratch)], check=True)

    def _command(self, kernel: Path, initrd: Path, port: int) -> list[str]:
        return [
            *("qemu-system-x86_64", "-M", "q35", "-accel", "tcg,thread=multi,tb-size=1024"),
            *(
                "-cpu",
                "max,-la57",
                "-smp",
                str(self._processors),
                "-m",
                f"{MEMORY_GIB}G",
                "-nodefaults",
                "-no-reboot",
                "-display",
                "none",
            ),
            *("-kernel", str(kernel), "-initrd", str(initrd), "-append"),
            "console=ttyS0 quiet loglevel=4 mitigations=off nokaslr panic=-1 tsc=reliable no_timer_check audit=0",
            *("-serial", f"file:{self._serial}"),
            *("-fsdev", "local,id=r,path=/,security_model=none,readonly=on,multidevs=remap"),
            *("-device", "virtio-9p-pci,fsdev=r,mount_tag=hostroot"),
            *("-fsdev", f"local,id=s,path={self.share},security_model=none"),
            *("-device", "virtio-9p-pci,fsdev=s,mount_tag=share"),
            *("-drive", f"file={self.folder / 'scratch.img'},if=none,id=d,format=raw,cache=unsafe"),
            *("-device", "virtio-blk-pci,drive=d", "-device", "virtio-rng-pci"),
            *("-netdev", f"user,id=n,restrict={self._restrict},hostfwd=tcp:127.0.0.1:{port}-:{PORT}"),
            *("-device", "virtio-net-pci,netdev=n,romfile="),
        ]

    def _port(self) -> int:
        return int((self.folder / "port").read_text())

    def _answers(self, timeout_s: float = 15.0) -> bool:
        with (
            contextlib.suppress(OSError),
            self.connect(["true"], env=None, cwd=None, timeout_s=timeout_s) as door,
        ):
            return door.recv(1) == b"x"  # nothing but its exit code
        return False

    def _is_ours(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return str(self.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        return False

    def _relay(self, door: socket.socket, sink: Sink, deadline: float | None) -> int:
        while True:
            door.settimeout(LOOK_S)
            head = self._exactly(door, 5, deadline)
            data = self._exactly(door, struct.unpack(">I", head[1:])[0], deadline) if head else b""
            if not head:
                return DEAD
            if head[:1] == b"x":
                return int(data)
            sink(head[:1], data)

    def _exactly(self, door: socket.socket, size: int, deadline: float | None) -> bytes:
        data, heard = b"", time.monotonic()
        while len(data) < size:
            try:
                more = door.recv(size - len(data))
            except TimeoutError:
                if not self.alive() or (deadline is not None and time.monotonic() > deadline):
                    return b""
                if time.monotonic() - heard > SILENT_S:
                    if not self._answers(ANSWER_S):
                        return b""
                    heard = time.monotonic()
                continue
            except OSError:
                return b""
            if not more:
                return b""
            data += more
            if deadline is not None and time.monotonic() > deadline:
                return b""
        return data


def _under_tmp() -> list[str]:
    """What the tests need of this host's /tmp, which the machine has not: the repository and its Python."""
    folders = {str(Path(folder).resolve()) for folder in (Path.cwd(), sys.prefix, sys.base_prefix)}
    return sorted(folder.lstrip("/") for folder in folders if folder.startswith("/tmp/"))


def _feed(door: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, 65536):
            door.sendall(b"i" + struct.pack(">I", len(data)) + data)
        door.sendall(b"i" + struct.pack(">I", 0))


def _print(kind: bytes, data: bytes) -> None:
    stream = sys.stdout if kind == b"o" else sys.stderr
    stream.buffer.write(data)
    stream.flush()


def _gone(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)


def free_port() -> int:
    """A port of this host that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
