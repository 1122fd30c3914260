"""Published ports: what comes to a place of this host is answered by the guest, and by nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from tests.bubblewrap.conftest import ROOT, Box, Make, until

from sandbox_console.backends.bubblewrap.supervise import tree
from sandbox_console.errors import BackendError, Conflict
from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec

_MUCH = 50 << 20
_GUEST = """
import hashlib, os, socket, sys, threading
here, enough = [], threading.Event()
def talk(sock):
    file = sock.makefile("rb")
    word = file.readline().decode().strip()
    if word == "hi":
        sock.sendall(b"hi\\n")
    elif word == "much":
        size, seen = 0, hashlib.sha256()
        while data := file.read(1 << 20):
            size += len(data)
            seen.update(data)
        sock.sendall(f"{size} {seen.hexdigest()}\\n".encode())
        for number in range(size >> 20):
            sock.sendall(bytes([number]) * (1 << 20))
    elif word == "together":
        here.append(sock)
        if len(here) == 256:
            enough.set()
        enough.wait(60)
        sock.sendall(b"hi\\n")
    elif word == "last":
        sock.sendall(bytes(3 << 20))
        os._exit(0)
    elif word == "stuck":
        sock.settimeout(1)
        try:
            while True:
                sock.sendall(bytes(1 << 20))
        except TimeoutError:
            os._exit(0)
    file.close()
    sock.close()
server = socket.create_server((sys.argv[1], 7000), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, backlog=300)
print("listens")
while True:
    threading.Thread(target=talk, args=[server.accept()[0]], daemon=True).start()
"""


async def _serving(make: Make, *ports: str, at: str = "", **fields: Any) -> Box:
    box = await make("python3", "-I", "-S", "-u", "-c", _GUEST, at, ports=ports or ("7000",), **fields)
    await _listens(box)
    return box


async def _listens(box: Box, times: int = 1) -> None:
    async def told() -> bool:
        return (await box.text()).count(b"listens") == times

    await until(told)


async def _place(box: Box) -> tuple[str, int]:
    [value] = [fact.value for fact in (await box.show()).effective if fact.field == "port 7000/tcp"]
    address, _, port = value.rpartition(":")
    return address.strip("[]"), int(port)


def _exchange(place: tuple[str, int], *said: bytes) -> bytes:
    """Say it, close that half, and hear all of the answer."""
    with socket.create_connection(place, 60) as sock:
        for part in said:
            sock.sendall(part)
        sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(1 << 20), b""))


async def _ask(place: tuple[str, int], *said: bytes) -> bytes:
    return await asyncio.to_thread(_exchange, place, *said)


def _free() -> int:
    """A port that no connection of another test is given meanwhile: below those that the kernel chooses from."""
    while True:
        number = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", number)):
            return number


def _relay(box: Box) -> int:
    """Its pid: of the supervisor's children with the supervisor's own command line the oldest."""
    mine = Path(f"/proc/{box.raw['supervisor']}/cmdline").read_bytes()
    for pid in tree.children(box.raw["supervisor"]):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == mine:
                return pid
    return 0


def _connected(port: int) -> bool:
    """Whether a client of this host is connected to a port."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[2].endswith(f":{port:04X}") for row in rows)


def _status(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: rest.split() for name, _, rest in (line.partition(":") for line in lines)}


async def test_much_goes_both_ways_unharmed_and_a_half_that_is_closed_leaves_the_other_open(make: Make) -> None:
    place = await _place(box := await _serving(make))
    data = os.urandom(_MUCH)
    answer = await _ask(place, b"much\n", data)
    head, _, rest = answer.partition(b"\n")
    assert head.decode() == f"{_MUCH} {hashlib.sha256(data).hexdigest()}"
    assert len(rest) == _MUCH
    assert rest == b"".join(bytes([number]) * (1 << 20) for number in range(_MUCH >> 20))
    assert int(_status(_relay(box))["VmRSS"][0]) < 12_000


async def test_three_hundred_at_once_are_answered_though_no_more_than_256_are_let_in(make: Make) -> None:
    place = await _place(box := await _serving(make))
    quiet = socket.create_connection(place, 60)
    both = [await asyncio.open_connection(*place) for _ in range(300)]
    for _reader, writer in both:
        writer.write(b"together\n")
    if ROOT:
        await until(lambda: len(os.listdir(f"/proc/{_relay(box)}/fd")) > 500)
        assert len(os.listdir(f"/proc/{_relay(box)}/fd")) < 520
    quiet.close()  # the guest waits for 256 of them, and answers none before
    async with asyncio.timeout(60):  # nor does a client that keeps its half open keep the others out
        assert {await reader.read() for reader, _ in both} == {b"hi\n"}
    for _reader, writer in both:
        writer.close()


async def test_a_thousand_connections_leave_no_descriptor(make: Make) -> None:
    place = await _place(box := await _serving(make))
    pid = _relay(box)
    for _ in range(20):
        answers = await asyncio.gather(*(_ask(place, b"hi\n") for _ in range(50)))
        assert set(answers) == {b"hi\n"}
    with socket.create_connection(place) as sock:  # and one that the client breaks off
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.sendall(b"much\nxx")
    assert _relay(box) == pid
    assert int(_status(pid)["FDSize"][0]) <= 256
    if ROOT:
        await until(lambda: len(os.listdir(f"/proc/{pid}/fd")) <= 6)  # 0, 1, 2, its line, its poll, its place


@pytest.mark.parametrize("at", ["127.0.0.1", "::1"])
async def test_a_guest_that_listens_at_one_loopback_only_is_reached(make: Make, at: str) -> None:
    box = await _serving(make, "[::1]:7000" if at == "::1" else "7000", at=at)
    assert await _ask(await _place(box), b"hi\n") == b"hi\n"
    nobody = await make(ports=("7000",), name="nobody")
    with pytest.raises(ConnectionError):  # a reset, no silence
        await _ask(await _place(nobody), b"hi\n")


async def test_a_relay_that_is_killed_is_replaced_behind_the_same_place(make: Make) -> None:
    place = await _place(box := await _serving(make))
    pid = _relay(box)
    os.kill(pid, signal.SIGKILL)
    assert await _ask(place, b"hi\n") == b"hi\n"  # who comes in between waits
    assert _relay(box) not in (0, pid)
    assert await _place(box) == place


async def test_a_guest_neither_sees_nor_signals_its_relay_and_the_relay_has_no_privilege(make: Make) -> None:
    box = await _serving(make)
    relay, init = _status(pid := _relay(box)), _status(box.raw["init"])
    assert len(relay["NSpid"]) == len(init["NSpid"]) - 1  # it has no number in the guest's PID namespace
    assert relay["Uid"] == _status(box.raw["pid"])["Uid"]
    assert (set(relay["CapEff"][0]), set(relay["CapBnd"][0]), relay["NoNewPrivs"]) == ({"0"}, {"0"}, ["1"])
    tried = await box.sh(f"kill -9 {pid}; kill -9 {box.raw['supervisor']}")
    assert "No such process" in tried
    assert _relay(box) == pid
    assert _status(pid)["State"][0] != "T"


async def test_a_taken_place_fails_the_start_says_whose_it_is_and_leaves_nothing(make: Make) -> None:
    number = _free()
    first = await _serving(make, f"{number}:7000")
    second = await make(start=False, ports=("7001", f"{number}:7000"))
    with pytest.raises(Conflict, match=f"box-1: 127.0.0.1:{number} is taken by box-0$") as caught:
        await second.start()
    assert "stop box-0" in caught.value.hint
    shown = await second.show()
    assert (shown.status, shown.detail) == (Status.FAILED, f"127.0.0.1:{number} of this host is taken")
    assert {fact.value for fact in shown.effective if fact.field.startswith("port ")} == {"not published"}
    await until(lambda: tree.state(second.raw["supervisor"]) in ("", "Z"))
    await first.stop(0.2)
    await second.start()
    await second.stop(0.2)
    with socket.create_server(("127.0.0.1", number)), pytest.raises(Conflict, match="taken by another program"):
        await first.start()


async def test_places_that_cannot_be_had_are_told_before_a_sandbox_is_made(make: Make, backend: Any) -> None:
    def told(*ports: str, **fields: Any) -> str:
        return str(backend.validate(SandboxSpec("a", ports=ports, **fields)).get("ports", ""))

    assert told("192.0.2.7:8080:80") == "192.0.2.7 is not an address of this host"
    assert told("[::1]:80") == told("0.0.0.0:80") == told("8080:80") == ""
    assert told("3128") == ""
    assert "belongs to its egress gateway" in told(
        "3128", egress=("acme.org",)
    )  # no host's program is to use that way out
    assert ROOT or told("80:80") == "127.0.0.1:80 can only be opened by root; other users have the ports from 1024 on"
    box = await make(start=False, ports=("192.0.2.7:8080:80",))
    with pytest.raises(BackendError, match=r"box-0 cannot start: 192\.0\.2\.7 is not an address of this host"):
        await box.start()


async def test_who_connects_to_a_paused_one_waits(make: Make) -> None:
    place = await _place(box := await _serving(make))
    await box.backend.pause(await box.permit("pause"), box.ref)
    asked = asyncio.create_task(_ask(place, b"hi\n"))
    await until(lambda: _connected(place[1]))
    assert not asked.done()
    await box.backend.resume(await box.permit("resume"), box.ref)
    assert await asked == b"hi\n"


async def test_what_a_guest_says_last_arrives_and_then_it_is_closed(make: Make) -> None:
    box = await _serving(make)
    place = await _place(box)
    assert len(await _ask(place, b"last\n")) == 3 << 20
    await until(lambda: box.raw["status"] == "exited")
    with pytest.raises(ConnectionRefusedError):
        await _ask(place, b"hi\n")


async def test_an_answer_that_is_cut_short_by_the_end_does_not_look_whole(make: Make) -> None:
    box = await _serving(make)
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(await _place(box))
        sock.sendall(b"stuck\n")
        await until(lambda: box.raw["status"] == "exited")
        with pytest.raises(ConnectionResetError):
            await asyncio.to_thread(lambda: list(iter(lambda: sock.recv(1 << 20), b"")))


async def test_one_that_is_about_to_end_is_not_taken_for_started(make: Make) -> None:
    box = await make(
        "python3", "-c", "import signal as s; s.signal(s.SIGTERM, s.SIG_IGN); print(1, flush=True); s.pause()"
    )
    await until(box.text)
    stopping = asyncio.create_task(box.stop(600))
    await until(lambda: box.raw["status"] == "stopping")
    with pytest.raises(Conflict, match="box-0 is about to end"):
        await box.start()
    await box.backend.kill(await box.permit("kill"), box.ref, "SIGKILL")
    await stopping


async def test_a_supervisor_that_is_killed_takes_the_ports_along_and_the_next_start_opens_them(make: Make) -> None:
    number = _free()
    box = await _serving(make, f"{number}:7000")
    os.kill(box.raw["supervisor"], signal.SIGKILL)
    while (await box.show()).status is not Status.LOST:
        await asyncio.sleep(0.01)

    async def opened() -> bool:
        try:
            await box.start()
        except Conflict:  # the relay may take a second for the last bytes
            return False
        return True

    await until(opened)
    await _listens(box, 2)
    assert await _ask(("127.0.0.1", number), b"hi\n") == b"hi\n"


async def test_traffic_on_a_port_is_use_and_its_end_is_not(make: Make) -> None:
    idle = 1.0
    place = await _place(box := await _serving(make, idle_timeout_s=idle))
    began = last = time.monotonic()
    while time.monotonic() < began + 1.75 * idle and time.monotonic() < last + idle / 2:  # but for a halt of ours
        assert await _ask(place, b"hi\n") == b"hi\n"
        last, at = time.monotonic(), time.time()
        await asyncio.sleep(0.05)
    with socket.create_connection(place):  # open, and silent
        await until(lambda: box.raw["status"] == "exited")
    shown = await box.show()
    assert shown.exit.reason == "idle_timeout_s ran out"
    assert shown.finished_at > at + idle - 0.5
