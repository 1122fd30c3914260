"""The egress gateway: bytes a second, added connect time, a thousand tunnels, memory; beside the same without it.

The far server is a process that reads a ClientHello and then sends, so that no TLS of Python's is measured. The last
rows are from inside a bubblewrap sandbox, where there is one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.egress import ask, bundle, rule_files
from sandbox_console.errors import ConsoleError
from sandbox_console.model.action import Exec
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.permits import permit_maker

NAME = "bench.example.com"
TOTAL = 1 << 30
CONNECTS = 200
TUNNELS = 1000


def hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=NAME)
    with contextlib.suppress(ssl.SSLWantReadError):
        made.do_handshake()
    return outgoing.read()


HELLO = hello()


def serve(listener: socket.socket) -> None:
    """The far server, forked. The byte after the hello decides: R sends TOTAL bytes, W takes them, E answers one."""
    data = bytes(1 << 20)
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=answer, args=(sock, data), daemon=True).start()


def answer(sock: socket.socket, data: bytes) -> None:
    with sock, contextlib.suppress(OSError):
        got = sock.recv(65536)
        if got.startswith(b"GET "):
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % TOTAL)
            got = HELLO + b"R"
        while len(got) <= len(HELLO):
            got += sock.recv(65536)
        match got[len(HELLO) :][:1]:
            case b"R":
                for _ in range(TOTAL // len(data)):
                    sock.sendall(data)
            case b"W":
                left = TOTAL + len(HELLO) + 1 - len(got)
                buffer = bytearray(1 << 20)
                while left > 0:
                    left -= sock.recv_into(buffer)
                sock.sendall(b"!")
            case _:
                sock.sendall(b"!")
                sock.recv(1)


def open_to(proxy: tuple[str, int] | None, port: int, last: bytes) -> socket.socket:
    if proxy is None:
        sock = socket.create_connection(("127.0.0.1", port))
    else:
        sock = socket.create_connection(proxy)
        sock.sendall(f"CONNECT {NAME}:{port} HTTP/1.1\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += sock.recv(4096)
        assert b" 200 " in head, head
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(HELLO + last)
    return sock


def down(proxy: tuple[str, int] | None, port: int) -> float:
    buffer = bytearray(1 << 20)
    with open_to(proxy, port, b"R") as sock:
        began, left = time.perf_counter(), TOTAL
        while left > 0:
            left -= sock.recv_into(buffer)
        return TOTAL / (time.perf_counter() - began) / 1e6


def plain_down(proxy: tuple[str, int], port: int) -> float:
    """The same as plain HTTP, of which the gateway reads the heads."""
    buffer = bytearray(1 << 20)
    with socket.create_connection(proxy) as sock:
        sock.sendall(f"GET http://{NAME}:{port}/ HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n".encode())
        began, left = time.perf_counter(), TOTAL
        while left > 0:
            left -= sock.recv_into(buffer)
        return TOTAL / (time.perf_counter() - began) / 1e6


def up(proxy: tuple[str, int] | None, port: int) -> float:
    data = bytes(1 << 20)
    with open_to(proxy, port, b"W") as sock:
        began = time.perf_counter()
        for _ in range(TOTAL // len(data)):
            sock.sendall(data)
        sock.recv(1)
        return TOTAL / (time.perf_counter() - began) / 1e6


def connect_ms(proxy: tuple[str, int] | None, port: int) -> list[float]:
    """From the connect to the far server's first byte."""
    found = []
    for _ in range(CONNECTS):
        began = time.perf_counter()
        with open_to(proxy, port, b"E") as sock:
            sock.recv(1)
            found.append(1000 * (time.perf_counter() - began))
    return found


def memory_mb(pid: int) -> tuple[float, float]:
    """RSS and PSS of a process."""
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return tuple(int(rows[name].split()[0]) / 1000 for name in ("Rss", "Pss"))  # type: ignore[return-value]


def start_gateway(folder: Path, port: int) -> tuple[subprocess.Popen[bytes], tuple[str, int]]:
    folder.mkdir()
    (folder / "gateway.pyz").write_bytes(bundle.build())
    rules = (f"{NAME}:{port}", f"127.0.0.1:{port}")
    rule_files.prepare(folder, "bench", rules, {NAME: ("127.0.0.1",)})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        fd, address = listener.fileno(), listener.getsockname()
        words = [
            sys.executable,
            "-I",
            "-S",
            str(folder / "gateway.pyz"),
            "serve",
            "--folder",
            str(folder),
            "--fd",
            str(fd),
        ]
        process = subprocess.Popen(words, pass_fds=[fd], cwd="/", env={})
        ask.ask(address, NAME, port)
    return process, address


def row(name: str, figure: str) -> None:
    print(f"{name:<52} {figure}", flush=True)


def print_speed(where: str, proxy: tuple[str, int] | None, port: int) -> None:
    row(f"{where}: download", f"{max(down(proxy, port) for _ in range(3)):8.0f} MB/s")
    row(f"{where}: upload", f"{max(up(proxy, port) for _ in range(3)):8.0f} MB/s")


def print_connects(direct: list[float], through: list[float]) -> None:
    for name, found in (("direct", direct), ("through the gateway", through)):
        row(f"connect to first byte, {name}", f"{statistics.median(found):8.2f} ms median, {max(found):.2f} worst")
    row("added connect time", f"{statistics.median(through) - statistics.median(direct):8.2f} ms")


def print_tunnels(pid: int, proxy: tuple[str, int], port: int, folder: Path) -> None:
    before = memory_mb(pid)
    began = time.perf_counter()
    held = []
    for _ in range(TUNNELS):
        held.append(open_to(proxy, port, b"E"))
        held[-1].recv(1)
    took = time.perf_counter() - began
    after = memory_mb(pid)
    began = time.perf_counter()
    rule_files.change(folder, rules=())
    for sock in held:
        with contextlib.suppress(ConnectionResetError):
            sock.recv(1)
        sock.close()
    cut = time.perf_counter() - began
    row("the gateway, idle", f"{before[0]:8.1f} MB RSS, {before[1]:.1f} MB PSS")
    row(
        f"with {TUNNELS} tunnels open", f"{after[0]:8.1f} MB RSS, {1000 * (after[0] - before[0]) / TUNNELS:.1f} kB each"
    )
    row(f"opening {TUNNELS} one after another", f"{took:8.2f} s")
    row(f"their rule revoked: all {TUNNELS} cut after", f"{cut:8.2f} s   goal < 1 s")


async def in_a_sandbox(folder: Path, port: int) -> None:
    """The same by a small program inside a sandbox, through the sandbox's own door."""
    [backend] = BubblewrapProvider.backends(BackendSettings(folder / "state", {"egress_hosts": str(folder / "hosts")}))
    (folder / "hosts").write_text(f"127.0.0.1 {NAME}\n")
    await backend.open()
    async with permit_maker(folder) as permit:
        spec = SandboxSpec("bench", egress=(f"{NAME}:{port}", f"127.0.0.1:{port}"))
        try:
            ref = await backend.create(await permit("create"), spec, [], lambda _: None)
        except ConsoleError as error:
            row("bubblewrap", f"   not here: {error.message}")
            return
        try:
            await backend.start(await permit("start"), ref, [])
            program = PROGRAM.format(name=NAME, port=port, hello=HELLO, total=TOTAL)
            process = await backend.exec(await permit("exec"), Exec(ref, ("python3", "-c", program)), [])
            said = b"".join([data async for _, data in process.output()])
            found = json.loads(said)
            row("from inside a bubblewrap sandbox: download", f"{found['mb']:8.0f} MB/s")
            row("from inside a bubblewrap sandbox: to first byte", f"{found['ms']:8.2f} ms median")
        finally:
            await backend.remove(await permit("remove"), ref, force=True)


PROGRAM = """
import json, socket, statistics, time
def tunnel(last):
    sock = socket.create_connection(("127.0.0.1", 3128))
    sock.sendall(b"CONNECT {name}:{port} HTTP/1.1\\r\\n\\r\\n")
    head = b""
    while not head.endswith(b"\\r\\n\\r\\n"):
        head += sock.recv(4096)
    sock.sendall({hello!r} + last)
    return sock
times = []
for _ in range(100):
    began = time.perf_counter()
    with tunnel(b"E") as sock:
        sock.recv(1)
        times.append(1000 * (time.perf_counter() - began))
speeds, buffer = [], bytearray(1 << 20)
for _ in range(3):
    with tunnel(b"R") as sock:
        began, left = time.perf_counter(), {total}
        while left > 0:
            left -= sock.recv_into(buffer)
        speeds.append({total} / (time.perf_counter() - began) / 1e6)
print(json.dumps(dict(mb=max(speeds), ms=statistics.median(times))))
"""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16384, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port = listener.getsockname()[1]
    server = os.fork()
    if server == 0:
        serve(listener)
    listener.close()
    with tempfile.TemporaryDirectory(prefix="egress-bench-") as text:
        folder = Path(text)
        gateway, proxy = start_gateway(folder / "gateway", port)
        try:
            print_speed("direct", None, port)
            print_speed("through the gateway", proxy, port)
            row("through the gateway: plain HTTP", f"{max(plain_down(proxy, port) for _ in range(3)):8.0f} MB/s")
            print_connects(connect_ms(None, port), connect_ms(proxy, port))
            print_tunnels(gateway.pid, proxy, port, folder / "gateway")
            asyncio.run(in_a_sandbox(folder, port))
        finally:
            gateway.terminate()
            gateway.wait()
            os.kill(server, 9)
            os.waitpid(server, 0)


if __name__ == "__main__":
    main()
