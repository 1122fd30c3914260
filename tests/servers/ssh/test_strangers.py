"""Clients that are none: garbage and floods before anybody has logged in."""

from __future__ import annotations

import os
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

from tests.cli.conftest import Cli

VERSION = b"SSH-2.0-x\r\n"


def packet(payload: bytes) -> bytes:
    """An unencrypted packet (RFC 4253, section 6)."""
    pad = 8 - (len(payload) + 5) % 8 + 8
    return struct.pack(">IB", len(payload) + pad + 1, pad) + payload + bytes(pad)


KEXINIT = packet(bytes([20]) + bytes(16) + struct.pack(">I", 0) * 10 + b"\0" + bytes(4))


def answered(cli: Cli, data: bytes) -> tuple[int, bytes]:
    """The proxy's exit code and messages, for a client that sends these bytes and then only reads."""
    process = cli.start("proxy", "box", stdin=subprocess.PIPE)
    peaks = [0]
    with ThreadPoolExecutor(1) as pool:
        talk = pool.submit(process.communicate, data, 60)
        while not talk.done():
            peaks.append(peak_kib(process.pid))
            wait([talk], 0.02)
        _, err = talk.result()
    assert max(peaks) < 400_000
    return process.returncode, err


def peak_kib(pid: int) -> int:
    """The most memory that a process has had; 0 if it is gone."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    return 0


def refused(cli: Cli, data: bytes) -> None:
    code, err = answered(cli, data)
    assert code == 1, err
    assert err.startswith(b"error: no ssh client logged in on standard input"), err
    assert not (cli.home / "state/crashes").exists()
    assert not [row for row in cli.json("audit", "ls") if row["action"] in ("exec", "shell")]


def test_nothing(cli: Cli, box: str) -> None:
    refused(cli, b"")


def test_garbage(cli: Cli, box: str) -> None:
    refused(cli, os.urandom(1_000_000))


def test_a_line_without_an_end(cli: Cli, box: str) -> None:
    refused(cli, b"x" * 50_000_000)


def test_a_version_and_then_garbage(cli: Cli, box: str) -> None:
    refused(cli, VERSION + os.urandom(1_000_000))


def test_a_packet_of_4_gib(cli: Cli, box: str) -> None:
    refused(cli, VERSION + b"\xff\xff\xff\xff" + bytes(20_000_000))


def test_a_flood_of_key_exchanges(cli: Cli, box: str) -> None:
    refused(cli, VERSION + KEXINIT * 100_000)


def test_a_session_before_the_login(cli: Cli, box: str) -> None:
    refused(
        cli,
        VERSION + packet(bytes([90]) + struct.pack(">I", 7) + b"session" + struct.pack(">III", 0, 1 << 20, 1 << 15)),
    )


def test_a_terminal_is_told_what_to_type(cli: Cli, box: str, tmp_path: Path) -> None:
    master, terminal = os.openpty()
    try:
        process = cli.start("proxy", "box", stdin=terminal)
        _, err = process.communicate(timeout=60)
    finally:
        os.close(master)
        os.close(terminal)
    assert process.returncode == 2
    assert b"hint: ssh box.sandbox" in err
