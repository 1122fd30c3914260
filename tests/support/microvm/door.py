"""A connection on stdin and stdout, as QEMU gives it, to a Unix socket or a local port. Standard library only."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading


def main(where: str) -> None:
    if where.isdigit():
        there = socket.create_connection(("127.0.0.1", int(where)))
    else:
        there = socket.socket(socket.AF_UNIX)
        there.connect(where)
    threading.Thread(target=send, args=(there,), daemon=True).start()
    with contextlib.suppress(OSError):
        while data := there.recv(65536):
            while data:
                data = data[os.write(1, data) :]


def send(there: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, 65536):
            there.sendall(data)
        there.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(sys.argv[1])
