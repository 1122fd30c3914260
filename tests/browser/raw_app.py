"""A program that speaks the driver's packets without Textual, so that tests choose every byte and every failure.

Argument: `osc52` prints a hostile copy, `hang` ignores quit and SIGTERM and has a child, `silent` never announces
itself, `crash` fails with a message, `env` tells its variables' names, `echo` writes back what is typed, `hex` its bytes.
"""

import json
import os
import signal
import subprocess
import sys


def packet(kind: bytes, payload: bytes) -> None:
    os.write(1, kind + len(payload).to_bytes(4, "big") + payload)


def read_packets():
    source = sys.stdin.buffer
    while head := source.read(5):
        yield head[:1], source.read(int.from_bytes(head[1:], "big"))


def main(mode: str) -> None:
    if mode == "crash":
        sys.exit("it \x1b]0;owned\x07broke")
    if mode == "silent":
        signal.pause()
    os.write(1, b"__GANGLION__\n")
    packet(b"D", b"\x1b[2J\x1b[Hraw ready\r\n")
    if mode == "osc52":
        packet(
            b"D",
            b"\x1b]52;c;ZXZpbA==\x07\x1b]52;c;?\x07\x1b]8;;http://127.0.0.1:9/\x07link\x1b]8;;\x07\x1b]0;owned\x07",
        )
    if mode == "hang":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "600"])
        packet(b"D", f"pids {os.getpid()} {child.pid} on\r\n".encode())
    if mode == "env":
        packet(b"D", f"env {json.dumps(sorted(os.environ))}\r\n".encode())
    for kind, payload in read_packets():
        if kind == b"M" and json.loads(payload)["type"] == "quit" and mode != "hang":
            return
        if kind == b"D" and mode == "hex":
            packet(b"D", f"hex {payload.hex()} \r\n".encode())
        elif kind == b"D" or mode == "echo":
            packet(b"D", b"got " + payload + b"\r\n")


main(sys.argv[1])
