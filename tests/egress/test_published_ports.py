"""Published ports in the gateway: one that relays to a server of this machine, in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.egress.world import until

from sandbox_console.egress import published_ports
from sandbox_console.egress.published_ports import Publisher, routers_and_networks
from sandbox_console.egress.stream import reset

Guest = Callable[[socket.socket], None]
Address = tuple[str, int]


@contextlib.contextmanager
def published(guest: Guest | None, *, loopback: bool = False, **options: Any) -> Iterator[Address]:
    """Where a gateway answers that relays to ``guest``, or to where nobody listens."""
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = target.getsockname()
        if guest is None:
            target.close()
        else:
            stack.enter_context(serving(guest, target))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = listener.getsockname()[1]
        options = {"loopback": [port], **options} if loopback else options
        stack.enter_context(running(Publisher({port: address}, **options), listener))
        yield listener.getsockname()


@contextlib.contextmanager
def running(publisher: Publisher, listener: socket.socket) -> Iterator[None]:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(publisher.serve([listener]))
        thread = threading.Thread(target=loop.run_until_complete, args=[asyncio.wait({task})])
        thread.start()
        try:
            yield
        finally:
            loop.call_soon_threadsafe(task.cancel)
            thread.join()


@contextlib.contextmanager
def serving(guest: Guest, target: socket.socket) -> Iterator[None]:
    threads = []

    def one(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            guest(sock)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock = target.accept()[0]
                sock.settimeout(30)
                threads.append(threading.Thread(target=one, args=[sock]))
                threads[-1].start()

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield
    finally:
        target.shutdown(socket.SHUT_RDWR)
        accepting.join()
        for thread in threads:
            thread.join()


def said(address: Address, data: bytes) -> bytes | None:
    """What comes back to the end; None where the connection breaks off."""
    try:
        with socket.create_connection(address, 30) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            return read_all(sock)
    except ConnectionError:
        return None
    except OSError as error:
        if error.errno != errno.ENOTCONN:  # it was reset before the end was said
            raise
        return None


def read_all(sock: socket.socket) -> bytes:
    found = b""
    while part := sock.recv(4096):
        found += part
    return found


def hears(sock: socket.socket) -> None:
    """Answers when all has come."""
    sock.sendall(b"heard " + read_all(sock))


def breaks(sock: socket.socket) -> None:
    """Breaks off in the middle of its answer, when it is told to."""
    sock.sendall(b"half of")
    sock.recv(2)
    reset(sock)


def test_the_end_of_one_side_is_passed_on_and_the_other_goes_on():
    with published(hears) as address:
        assert said(address, b"a word") == b"heard a word"


def test_an_answer_that_breaks_off_does_not_look_whole():
    with published(breaks) as address, socket.create_connection(address, 30) as sock:
        assert sock.recv(7, socket.MSG_WAITALL) == b"half of"
        sock.sendall(b"go")
        with pytest.raises(ConnectionResetError):
            read_all(sock)


def test_where_nobody_listens_the_connection_ends():
    with published(None) as address:
        assert not said(address, b"x")


def test_from_the_sandbox_nothing_is_taken():
    with published(hears, inside=ipaddress.ip_network("127.0.0.0/29")) as address:
        assert not said(address, b"a word")


def test_what_is_for_the_host_alone_takes_nothing_that_comes_past_it():
    with published(hears, loopback=True) as address:  # this machine is not its own router
        assert not said(address, b"a word")


def test_so_many_at_once_and_there_is_room_again():
    with published(hears, most=3) as address:
        held = [socket.create_connection(address, 30) for _ in range(3)]
        until(lambda: not said(address, b"x"), "the fourth is refused")
        for sock in held:
            sock.close()
        until(lambda: said(address, b"x") == b"heard x", "there is room again")


def test_a_side_that_stays_silent_after_the_others_end_is_let_go(monkeypatch):
    monkeypatch.setattr(published_ports, "HALF_OPEN_S", 0.05)
    told: list[str] = []

    def silent(sock: socket.socket) -> None:
        """Hears the end and does not end itself; then it can only be told of a break."""
        read_all(sock)
        until(lambda: sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0, "it is told")
        told.append("broken")

    with published(silent) as address:
        assert said(address, b"x") is None
        until(lambda: told, "the guest's side is let go, too")


def test_who_is_near_and_who_is_the_way_out(tmp_path):
    """proc_pid_net(5): addresses as the machine's integers, here of a little-endian one."""
    table = tmp_path / "route"
    table.write_text(
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n"
        "eth0 00000000 010012AC 0003 0 0 0 00000000 0 0 0\n"
        "eth1 0000D50A 00000000 0001 0 0 0 F8FFFFFF 0 0 0\n"
        "eth0 000012AC 00000000 0001 0 0 0 0000FFFF 0 0 0\n"
    )
    routers, near = routers_and_networks(table)
    assert {str(one) for one in routers} == {"172.18.0.1"}
    assert [str(one) for one in near] == ["10.213.0.0/29", "172.18.0.0/16"]
