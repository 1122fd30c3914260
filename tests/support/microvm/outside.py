"""The console in a machine, driven from this host: its command line, its screen, its browser server.

In the machine are microVMs, namespaces of bubblewrap, and the containers of an engine of this host.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.engine import DockerEngine
from tests.support.microimage import LOAD, archive
from tests.support.microvm.machine import Machine, free_port
from tests.support.microvm.part import ROOT

from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

HOME = "/rw/outside"
SIZE = (36, 130)
PATIENCE_S = 400.0
COMMAND = (sys.executable, "-P", str(Path(__file__).with_name("patient.py")))
ENVIRONMENT = {
    "SANDBOX_CONSOLE_HOME": HOME, "MSB_HOME": "/rw/msb", "COLORTERM": "truecolor",
    "TERM": "xterm-256color", "LANG": "C.UTF-8", "TEXTUAL_ANIMATIONS": "none", "PYTHONDONTWRITEBYTECODE": "1",
}  # fmt: skip


class Outside:
    """A console's machine, seen from this host."""

    def __init__(self, machine: Machine, engine_port: int) -> None:
        self.machine = machine
        self._environment = ENVIRONMENT | {"DOCKER_HOST": f"tcp://10.0.2.2:{engine_port}"}

    def cli(self, *words: str) -> tuple[int, str, str]:
        """The command line inside; gives exit code, stdout and stderr."""
        return self.run(*COMMAND, *words)

    def run(self, *argv: str) -> tuple[int, str, str]:
        """Any program inside; gives exit code, stdout and stderr."""
        said = {b"o": b"", b"e": b""}

        def take(kind: bytes, data: bytes) -> None:
            said[kind] += data

        code = self.machine.run(argv, env=self._environment, cwd=str(ROOT), timeout_s=PATIENCE_S * 2, sink=take)
        return code, said[b"o"].decode(), said[b"e"].decode()

    def states(self) -> dict[str, str]:
        """Every sandbox's state by its name."""
        code, out, err = self.cli("ls", "--all", "--json")
        assert code == 0, err
        return {row["name"]: row["status"] for row in map(json.loads, out.splitlines())}

    @contextlib.contextmanager
    def screen(self) -> Iterator[Screen]:
        """The app on a terminal."""
        with self.machine.connect(COMMAND, env=self._environment, cwd=str(ROOT), timeout_s=30, tty=SIZE) as door:
            door.settimeout(None)
            try:
                yield Screen(door)
            finally:
                door.shutdown(socket.SHUT_RDWR)  # the reader holds it open, and with it the app

    @contextlib.contextmanager
    def browser(self) -> Iterator[str]:
        """The browser server; gives the link that it prints. Its port is the same here and there."""
        port = free_port()
        words = [*COMMAND, "serve", "--port", str(port)]
        with (
            self.machine.connect(words, env=self._environment, cwd=str(ROOT), timeout_s=30) as door,
            self._tunnel(port),
        ):
            door.settimeout(PATIENCE_S)
            said = b""
            while b"http://" not in said or not said.endswith(b"\n"):
                said += frame(door)[1]
            yield next(word for word in said.decode().split() if word.startswith("http://"))

    @contextlib.contextmanager
    def _tunnel(self, port: int) -> Iterator[None]:
        """As ``ssh -L`` does: each connection to the port here is one to it inside."""
        server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(server, port), daemon=True).start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            server.close()

    def _accept(self, server: socket.socket, port: int) -> None:
        words = [sys.executable, "-I", "-S", str(Path(__file__).with_name("door.py")), str(port)]
        with contextlib.suppress(OSError):
            while True:
                here, _ = server.accept()
                there = self.machine.connect(words, env=None, cwd=None, timeout_s=30)
                there.settimeout(None)
                threading.Thread(target=outward, args=(here, there), daemon=True).start()
                threading.Thread(target=inward, args=(here, there), daemon=True).start()


class Screen:
    """A terminal of the machine: what is on it, and its keys."""

    def __init__(self, door: socket.socket) -> None:
        self._door = door
        self._emulator = GhosttyEmulator(SIZE[1], SIZE[0])
        self._lock = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def press(self, text: str) -> None:
        """Type."""
        send(self._door, text.encode())

    @property
    def text(self) -> str:
        """What is on it."""
        with self._lock:
            self._emulator.refresh()
            return self._emulator.text()

    def sees(self, *texts: str) -> None:
        """Wait until all of these are on it."""
        until(lambda: all(text in self.text for text in texts), lambda: f"not all of {texts} on:\n{self.text}")

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                kind, data = frame(self._door)
                if kind == b"x":
                    return
                with self._lock:
                    answer = self._emulator.feed(data)
                if answer:
                    send(self._door, answer)


@contextlib.contextmanager
def outside(engine: DockerEngine) -> Iterator[Outside]:
    """A machine with the test image loaded and an engine of this host to reach. Raises MachineError."""
    machine = Machine(f"outside-{os.getpid()}", sees_host=True)
    port = free_port()
    relay = threading.Thread(
        target=relayed, args=(socket.create_server(("127.0.0.1", port)), engine.socket), daemon=True
    )
    relay.start()
    try:
        machine.up()
        (machine.share / "image.tar").write_bytes(archive())
        assert machine.run([sys.executable, "-c", LOAD, "/share/image.tar"], env=ENVIRONMENT, timeout_s=PATIENCE_S) == 0
        yield Outside(machine, port)
    finally:
        machine.remove()


def relayed(server: socket.socket, path: Path) -> None:
    """Pass each connection on to a Unix socket, until the process ends."""
    while True:
        here, _ = server.accept()
        there = socket.socket(socket.AF_UNIX)
        if there.connect_ex(str(path)):  # an engine that has ended
            here.close()
            there.close()
            continue
        for one, other in ((here, there), (there, here)):
            threading.Thread(target=passed, args=(one, other), daemon=True).start()


def passed(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


def until(true: Callable[[], bool], why: Callable[[], str]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, why()
        time.sleep(0.2)


def frame(door: socket.socket) -> tuple[bytes, bytes]:
    """One of the agent's frames. Raises ConnectionError at its end."""
    head = exactly(door, 5)
    return head[:1], exactly(door, struct.unpack(">I", head[1:])[0])


def exactly(door: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = door.recv(size - len(data))
        if not more:
            raise ConnectionError("the agent is gone")
        data += more
    return data


def send(door: socket.socket, data: bytes) -> None:
    door.sendall(b"i" + struct.pack(">I", len(data)) + data)


def outward(here: socket.socket, there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := here.recv(65536):
            send(there, data)
        send(there, b"")


def inward(here: socket.socket, there: socket.socket) -> None:
    with contextlib.suppress(OSError), here, there:
        while (found := frame(there))[0] != b"x":
            if found[0] == b"o":
                here.sendall(found[1])
