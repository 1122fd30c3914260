"""In the machine: stdin and stdout to a port of its loopback. Standard library only."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading


def main(port: int) -> None:
    there = socket.create_connection(("127.0.0.1", port))
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
    main(int(sys.argv[1]))
