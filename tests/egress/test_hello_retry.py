"""A server that asks for a second ClientHello: it has to name the host of the first."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.egress import world

from sandbox_console.egress import client_hello, hello_retry

GOOD, EVIL = "good.example.com", "evil.example.net"
CHANGE = b"\x14\x03\x03\x00\x01\x01"
EARLY = b"\x17\x03\x03\x00\x20" + bytes(32)


def hello_bytes(name: str | None) -> bytes:
    """A real one, as OpenSSL writes it."""
    context = ssl.create_default_context()
    context.check_hostname = False
    out = ssl.MemoryBIO()
    made = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        made.do_handshake()
    return out.read()


def server_hello(random_: bytes = hello_retry._RETRY) -> bytes:
    body = b"\x03\x03" + random_ + b"\0\x13\x01\0" + b"\0\x0c\x00\x2b\x00\x02\x03\x04\x00\x33\x00\x02\x00\x18"
    message = b"\x02" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x03" + len(message).to_bytes(2, "big") + message


def split(record: bytes, size: int) -> bytes:
    """One handshake record as many."""
    body = record[5:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(record[:3] + len(part).to_bytes(2, "big") + part for part in parts)


def pieces(data: bytes) -> list[bytes]:
    return [data[at : at + 23] for at in range(0, len(data), 23)]


class Far:
    """A server that answers the first bytes with ``answer``, and keeps what it is sent."""

    def __init__(self, answer: bytes) -> None:
        self.got = b""
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            with sock:
                while part := sock.recv(65536):
                    if not self.got:
                        sock.sendall(self._answer)
                    self.got += part

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def asks_again(ca: Path) -> Iterator[int]:
    """OpenSSL's own server, which takes P-384 alone; clients bring X25519 unasked."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", "cert.pem", "-key", "key.pem"]
    made = subprocess.Popen(
        [*words, "-tls1_3", "-groups", "P-384", "-www", "-naccept", "20"], cwd=ca,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def up() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    try:
        world.until(up, "s_server listens")
        yield port
    finally:
        made.kill()
        made.wait()


def tunnel(gateway, port: int) -> socket.socket:
    gateway.allow(f"{GOOD}:{port}", f"127.0.0.1:{port}")
    sock, head = world.connect(gateway.address, f"{GOOD}:{port}")
    assert b" 200 " in head
    return sock


def record_of(sock: socket.socket) -> bytes:
    head = sock.recv(5, socket.MSG_WAITALL)
    return head + sock.recv(int.from_bytes(head[3:5], "big"), socket.MSG_WAITALL) if len(head) == 5 else b""


def test_a_real_handshake_that_is_asked_again_goes_through(gateway, asks_again, ca):
    with world.tls(tunnel(gateway, asks_again), ca, GOOD) as made:
        made.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b"TLSv1.3" in world.drain(made)
    assert gateway.reasons() == []
    ends = world.until(lambda: [one for one in gateway.records() if one.ended], "its end is on record")
    assert ends[0].sent_bytes > 2 * 200
    assert ends[0].received_bytes > 500


@pytest.mark.parametrize("name", [EVIL, None])
def test_a_second_hello_to_a_real_server_that_names_another_ends_there(gateway, asks_again, name):
    with tunnel(gateway, asks_again) as sock:
        sock.sendall(hello_bytes(GOOD))
        asked = record_of(sock)
        assert asked[11:43] == hello_retry._RETRY, "the server asks again"
        sock.sendall(CHANGE + hello_bytes(name))
        rest = world.drain(sock)
    assert rest.endswith(b"\x15\x03\x03\x00\x02\x02\x70"), "unrecognized_name, and no word of the server's"
    assert gateway.reasons() == [(GOOD, "sni_mismatch" if name else "no_sni")]
    [end] = [one for one in gateway.records() if one.ended]
    assert end.reason == ("sni_mismatch" if name else "no_sni")


SECONDS = {
    "plain": (server_hello(), lambda one: one),
    "behind a change of cipher": (server_hello(), lambda one: CHANGE + one),
    "behind early data": (server_hello(), lambda one: EARLY + CHANGE + EARLY + one),
    "in many records": (server_hello(), lambda one: split(one, 40)),
    "asked for in many records": (split(server_hello(), 5), lambda one: one),
    "asked for behind a warning": (b"\x15\x03\x03\x00\x02\x01\x70" + server_hello(), lambda one: one),
}


@pytest.mark.parametrize("how", SECONDS)
@pytest.mark.parametrize("early", [False, True])
def test_no_second_hello_with_another_name_gets_to_the_server(gateway, how, early):
    """``early`` sends it before the server has asked."""
    answer, dressed = SECONDS[how]
    far = Far(answer)
    with tunnel(gateway, far.port) as sock:
        if early:
            sock.sendall(hello_bytes(GOOD))
            sock.sendall(dressed(hello_bytes(EVIL)))
        else:
            sock.sendall(hello_bytes(GOOD))
            record_of(sock)
            with contextlib.suppress(OSError):  # the gateway ends it as soon as it has read the name
                for part in pieces(dressed(hello_bytes(EVIL))):
                    sock.sendall(part)
        world.drain(sock)
    far.close()
    assert far.got.count(GOOD.encode()) == 1
    assert EVIL.encode() not in far.got
    assert (GOOD, "sni_mismatch") in gateway.reasons()


@pytest.mark.parametrize("how", ["plain", "behind a change of cipher", "behind early data", "in many records"])
@pytest.mark.parametrize("with_connect", [False, True])
def test_no_second_hello_goes_along_in_the_segment_of_the_first(gateway, how, with_connect):
    """A client that knows what a server asks for need not wait for it."""
    answer, dressed = SECONDS[how]
    far = Far(answer)
    gateway.allow(f"{GOOD}:{far.port}", f"127.0.0.1:{far.port}")
    connect = f"CONNECT {GOOD}:{far.port} HTTP/1.1\r\nHost: {GOOD}:{far.port}\r\n\r\n".encode()
    both = hello_bytes(GOOD) + dressed(hello_bytes(EVIL))
    with socket.create_connection(gateway.address, 20) as sock:
        sock.sendall(connect + both if with_connect else connect)
        assert b" 200 " in sock.recv(4096)
        if not with_connect:
            sock.sendall(both)
        sock.shutdown(socket.SHUT_WR)
        world.drain(sock)
    far.close()
    assert far.got.count(GOOD.encode()) == 1
    assert EVIL.encode() not in far.got
    assert gateway.reasons() == [(GOOD, "sni_mismatch")]


@pytest.mark.parametrize("how", SECONDS)
def test_a_second_hello_in_the_segment_of_the_first_arrives_byte_for_byte(gateway, how):
    answer, dressed = SECONDS[how]
    far = Far(answer)
    both = hello_bytes(GOOD) + dressed(hello_bytes(GOOD)) + EARLY * 3
    with tunnel(gateway, far.port) as sock:
        sock.sendall(both)
        sock.shutdown(socket.SHUT_WR)
        assert world.drain(sock) == answer
    far.close()
    assert far.got == both
    assert gateway.reasons() == []


@pytest.mark.parametrize("how", SECONDS)
def test_a_second_hello_with_the_same_name_arrives_byte_for_byte(gateway, how):
    answer, dressed = SECONDS[how]
    far = Far(answer)
    first, second = hello_bytes(GOOD), dressed(hello_bytes(GOOD)) + EARLY * 3
    with tunnel(gateway, far.port) as sock:
        sock.sendall(first)
        for part in pieces(second):
            sock.sendall(part)
        sock.shutdown(socket.SHUT_WR)
        assert world.drain(sock) == answer
    far.close()
    assert far.got == first + second
    assert gateway.reasons() == []


def test_a_handshake_that_is_not_asked_again_passes_what_only_looks_like_a_hello(gateway):
    """In TLS 1.2 encrypted handshake records follow: their bytes may be anything."""
    far = Far(server_hello(bytes(32)))
    like = hello_bytes(EVIL)
    with tunnel(gateway, far.port) as sock:
        sock.sendall(hello_bytes(GOOD))
        record_of(sock)
        sock.sendall(CHANGE + like)
        sock.shutdown(socket.SHUT_WR)
        world.drain(sock)
    far.close()
    assert far.got.endswith(CHANGE + like)
    assert gateway.reasons() == []


def test_thousands_of_damaged_hellos_never_bring_another_name_through():
    """Whatever goes on to the server after it has asked again is nothing, or a hello whose name was checked."""
    seed = random.Random(7)
    whole = hello_bytes(EVIL)
    passed = 0
    for _ in range(5000):
        data = bytearray(seed.choice((whole, CHANGE + whole, split(whole, seed.randrange(1, 400)))))
        for _ in range(seed.randrange(4)):
            at = seed.randrange(len(data))
            match seed.randrange(4):
                case 0:
                    data[at] = seed.randrange(256)
                case 1:
                    del data[at : at + seed.randrange(1, 9)]
                case 2:
                    data[at:at] = seed.randbytes(seed.randrange(1, 9))
                case _:
                    data[at] ^= 1 << seed.randrange(8)
        answer = hello_retry.Answer()
        answer.feed(server_hello())
        said = hello_retry.Client(answer)
        out = b""
        with contextlib.suppress(client_hello.NotTLS):
            for at in range(0, len(data), 97):
                said.feed(bytes(data[at : at + 97]))
                out += said.onward()
        # Of a hello nothing is let out before `watch` has looked at its name.
        assert not any(kind == 22 for kind in kinds(out))
        passed += said.name is not None
    assert passed > 100, "some of them can still be read"


def kinds(data: bytes) -> list[int]:
    """The types of the records in it."""
    found, records = [], hello_retry._Records()
    records.rest = data
    while record := records.take():
        found.append(record[0])
    assert records.rest == b""
    return found
