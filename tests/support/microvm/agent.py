"""In the machine: runs commands for whoever knows the token. Standard library only.

A connection sends one JSON line {token, argv, env, cwd, tty: [rows, columns] or null}, then the command's stdin in frames; it gets frames back.
A frame is one byte of kind and four of length, big-endian: o stdout, e stderr, i stdin (empty: its end), x exit code.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

PORT = 7070


def main() -> None:
    token = Path(sys.argv[1]).read_text().strip()
    server = socket.create_server(("0.0.0.0", PORT), reuse_port=True)
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection, token), daemon=True).start()


def serve(connection: socket.socket, token: str) -> None:
    with connection, connection.makefile("rwb") as stream:
        request = json.loads(stream.readline())
        if not hmac.compare_digest(str(request.get("token", "")), token):
            return
        try:
            process = start(request)
        except OSError as error:
            send(stream, threading.Lock(), b"e", f"{error}\n".encode())
            send(stream, threading.Lock(), b"x", b"127")
            return
        relay(stream, process)


def start(request) -> subprocess.Popen:
    """The command, on pipes or on a terminal of its own."""
    options = {"cwd": request.get("cwd"), "env": {**os.environ, **request.get("env", {})}, "start_new_session": True}
    if not request.get("tty"):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(request["argv"], **pipes, **options)
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *request["tty"], 0, 0))
    take = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # noqa: E731
    try:
        process = subprocess.Popen(
            request["argv"],
            **dict.fromkeys(("stdin", "stdout", "stderr"), slave),
            **options,
            preexec_fn=take,  # noqa: PLW1509 - one ioctl
        )
    finally:
        os.close(slave)
    process.stdout, process.stdin = os.fdopen(master, "rb", 0), os.fdopen(os.dup(master), "wb", 0)
    return process


def relay(stream, process) -> None:
    lock = threading.Lock()
    pumps = [
        threading.Thread(target=pump, args=(stream, lock, kind, pipe), daemon=True)
        for kind, pipe in ((b"o", process.stdout), (b"e", process.stderr))
        if pipe
    ]
    for one in pumps:
        one.start()
    threading.Thread(target=feed, args=(stream, process), daemon=True).start()
    code = process.wait()
    for one in pumps:
        one.join(2)  # a daemon of the command may hold its pipes
    send(stream, lock, b"x", str(code).encode())


def pump(stream, lock, kind, pipe) -> None:
    with contextlib.suppress(OSError):  # a terminal that nobody holds any more
        while data := os.read(pipe.fileno(), 65536):
            send(stream, lock, kind, data)


def feed(stream, process) -> None:
    """Stdin; a connection that ends takes the command's whole session with it."""
    try:
        while (head := stream.read(5)) and len(head) == 5:
            data = stream.read(struct.unpack(">I", head[1:])[0])
            if not data:
                process.stdin.close()
            else:
                process.stdin.write(data)
                process.stdin.flush()
        os.killpg(process.pid, signal.SIGKILL)
    except (OSError, ValueError):
        return


def send(stream, lock, kind, data) -> None:
    with lock:
        try:
            stream.write(kind + struct.pack(">I", len(data)) + data)
            stream.flush()
        except OSError:
            return


if __name__ == "__main__":
    main()
