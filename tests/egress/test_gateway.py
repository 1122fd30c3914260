"""The gateway as it ships, against real servers: what passes, what does not, and what is written down."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from tests.egress import world

from sandbox_console.egress import ask, bundle
from sandbox_console.model.egress import Effect, EgressRule


def body_of(answer: bytes) -> dict:
    return json.loads(answer.partition(b"\r\n\r\n")[2])


def get(gateway, url, host=None):
    host = host or url.split("/")[2]
    return world.exchange(gateway.address, f"GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())


def https(gateway, ca, target, name):
    sock, head = world.connect(gateway.address, target)
    assert b" 200 " in head, head
    with world.tls(sock, ca, name) as secure:
        secure.sendall(f"GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        return world.drain(secure)


def test_it_is_standard_library_only_and_runs_alone(program, tmp_path):
    names = zipfile.ZipFile(program).namelist()
    assert all(
        name.startswith("sandbox_console/egress/")
        or name in ("__main__.py", "sandbox_console/__init__.py", "sandbox_console/model/__init__.py",
                    "sandbox_console/model/hosts.py", "sandbox_console/model/egress.py")
        for name in names
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", program, "--help"], cwd=tmp_path, capture_output=True, env={}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert bundle.build() == program.read_bytes()


def test_it_imports_nothing_once_it_has_given_up_root(program):
    """Its interpreter may be in a folder that its own user cannot read."""
    script = """
import sys
sys.path.insert(0, sys.argv[1])
import sandbox_console.egress.main
class Closed:
    def find_spec(self, name, path=None, target=None):
        raise ImportError(f"{name} is imported late")
sys.meta_path.insert(0, Closed())
from sandbox_console.egress.decide import verdict
from sandbox_console.egress.resolve import resolve
from sandbox_console.model.egress import EgressRule
assert verdict([EgressRule("m\u00fcnchen.example.com")], "xn--mnchen-3ya.example.com", 443).allowed
assert not verdict([EgressRule("example.com")], "\u00e4.example.com", 443).allowed
import asyncio, json, socket
json.loads(json.dumps({"a": 1.5}))
async def serve():
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    client = asyncio.ensure_future(asyncio.to_thread(socket.create_connection, listener.getsockname()))
    (await loop.sock_accept(listener))[0].close()
    (await client).close()
    listener.close()
    try:
        await resolve("m\u00fcnchen.invalid", {})
    except OSError:
        pass
asyncio.run(serve())
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script, str(program)], capture_output=True, text=True)  # noqa: PLW1510
    assert (done.returncode, done.stderr) == (0, "")


def test_https_to_an_allowed_host(gateway, outside, ca):
    secure, _ = outside
    answer = https(gateway, ca, f"good.example.com:{secure.port}", "good.example.com")
    assert answer.endswith(b"hello from good.example.com")
    assert b"hello" in https(gateway, ca, f"A.wild.Example.ORG.:{secure.port}", "a.wild.example.org")
    world.until(lambda: sum(one.ended for one in gateway.records()) == 2, "the ends are on record")
    first, end = [one for one in gateway.records() if one.host == "good.example.com"]
    assert (first.allowed, first.address, first.rule) == (True, "127.0.0.1", f"good.example.com:{secure.port}")
    assert (first.sandbox, first.port, first.method) == ("box", secure.port, "CONNECT")
    assert end.ended
    assert end.sent_bytes > 300
    assert end.received_bytes > len(answer)
    assert 0 < end.duration_s < 60


def test_plain_http_to_an_allowed_host(gateway, outside):
    _, plain = outside
    host = f"good.example.com:{plain.port}"
    answer = get(gateway, f"http://{host}/path?q=1#part")
    assert answer.endswith(f"hello from {host}".encode())
    assert b"Connection: close" in answer
    [(said, path, headers, _)] = plain.seen
    assert (said, path) == (host, "/path?q=1")
    assert headers["Connection"] == "close"
    end = world.until(lambda: [one for one in gateway.records() if one.ended], "the end is on record")[0]
    assert end.received_bytes == len(answer)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_arrives_whole_and_is_framed_anew(gateway, outside, chunked):
    _, plain = outside
    host = f"good.example.com:{plain.port}"
    data = bytes(range(256)) * 1000
    head = f"POST http://{host}/up HTTP/1.1\r\nHost: {host}\r\nProxy-Connection: keep-alive\r\nConnection: X-Gone\r\nX-Gone: 1\r\nX-Kept: 2\r\n"
    if chunked:
        pieces = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(part), part) for part in (data[:7], data[7:]))
        sent = head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\nTrailer: x\r\n\r\n"
    else:
        sent = head.encode() + f"Content-Length: {len(data)}\r\n\r\n".encode() + data
    assert world.exchange(gateway.address, sent).endswith(b"got 256000 bytes")
    [(_, _, headers, body)] = plain.seen
    assert body == data
    assert headers["X-Kept"] == "2"
    assert not {"X-Gone", "Proxy-Connection"} & headers.keys()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://evil.example.net:PORT/", "not_allowed"),
        ("http://good.example.com.evil.example.net:PORT/", "not_allowed"),
        ("http://evilgood.example.com:PORT/", "not_allowed"),
        ("http://wild.example.org:PORT/", "not_allowed"),
        ("http://127.0.0.2:PORT/", "not_allowed"),
        ("http://2130706433:PORT/", "not_allowed"),
        ("http://0x7f000001:PORT/", "not_allowed"),
        ("http://0177.0.0.1:PORT/", "not_allowed"),
        ("http://127.1:PORT/", "not_allowed"),
        ("http://[::1]:PORT/", "not_allowed"),
        ("http://[::ffff:127.0.0.1]:PORT/", "not_allowed"),
        ("http://169.254.169.254/latest/meta-data/", "not_allowed"),
        ("http://good.example.com:22/", "not_allowed"),
        ("http://user@good.example.com:PORT/", "bad_request"),
        ("http://good.example.com:PORT@evil.example.net/", "bad_request"),
        ("http://good%2eexample.com:PORT/", "bad_host"),
        ("http://good.example.com%00.evil.example.net:PORT/", "bad_host"),
        ("https://good.example.com:PORT/", "bad_request"),
        ("ftp://good.example.com:PORT/", "bad_request"),
    ],
)
def test_what_a_url_may_not_be(gateway, outside, url, reason):
    _, plain = outside
    url = url.replace("PORT", str(plain.port))
    answer = get(gateway, url)
    assert body_of(answer)["reason"] == reason
    assert answer.startswith(b"HTTP/1.1 400" if reason == "bad_request" else b"HTTP/1.1 403")
    assert [one.reason for one in gateway.records()] == [reason]
    assert plain.connections == 0


def test_what_a_denied_client_is_told(gateway):
    told = body_of(get(gateway, "http://evil.example.net/"))
    assert told == {
        "error": "egress to evil.example.net:80 is refused: no rule allows it",
        "reason": "not_allowed",
        "host": "evil.example.net",
        "hint": "on the host: sandbox-console egress allow box evil.example.net",
    }


HEADS = {
    "another Host": ("GET {u} HTTP/1.1\r\nHost: evil.example.net\r\n\r\n", "host_mismatch"),
    "another port": ("GET {u} HTTP/1.1\r\nHost: good.example.com\r\n\r\n", "host_mismatch"),
    "two Hosts": ("GET {u} HTTP/1.1\r\nHost: {h}\r\nHost: {h}\r\n\r\n", "bad_request"),
    "no Host": ("GET {u} HTTP/1.1\r\n\r\n", "bad_request"),
    "length and chunked": ("POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "bad_request"),
    "two lengths": ("POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "bad_request"),
    "a list of lengths": ("POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5, 5\r\n\r\n", "bad_request"),
    "a signed length": ("POST {u} HTTP/1.1\r\nHost: {h}\r\nContent-Length: +5\r\n\r\n", "bad_request"),
    "another coding": ("POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "bad_request"),
    "a hidden coding": ("POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding : chunked\r\n\r\n", "bad_request"),
    "chunked of 1.0": ("POST {u} HTTP/1.0\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n", "bad_request"),
    "a folded line": ("GET {u} HTTP/1.1\r\nHost: {h}\r\nX: a\r\n b\r\n\r\n", "bad_request"),
    "a bare LF": ("GET {u} HTTP/1.1\r\nHost: {h}\nX: a\r\n\r\n", "bad_request"),
    "a bare CR": ("GET {u} HTTP/1.1\r\nHost: {h}\rX: a\r\n\r\n", "bad_request"),
    "a NUL": ("GET {u} HTTP/1.1\r\nHost: {h}\r\nX: a\0b\r\n\r\n", "bad_request"),
    "a space in the target": ("GET {u} x HTTP/1.1\r\nHost: {h}\r\n\r\n", "bad_request"),
    "a tab in the line": ("GET\t{u} HTTP/1.1\r\nHost: {h}\r\n\r\n", "bad_request"),
    "HTTP/2": ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "bad_request"),
    "origin form": ("GET /secret HTTP/1.1\r\nHost: {h}\r\n\r\n", "bad_request"),
    "a chunk without a size": ("POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "bad_request"),
    "a chunk too long": ("POST {u} HTTP/1.1\r\nHost: {h}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n", "bad_request"),
    "CONNECT with a body": ("CONNECT {h} HTTP/1.1\r\nHost: {h}\r\nContent-Length: 5\r\n\r\nhello", "bad_request"),
    "CONNECT without a port": ("CONNECT good.example.com HTTP/1.1\r\n\r\n", "bad_request"),
    "CONNECT with a path": ("CONNECT {h}/x HTTP/1.1\r\n\r\n", "bad_request"),
}  # fmt: skip


@pytest.mark.parametrize("case", HEADS)
def test_what_two_readers_could_understand_differently(gateway, outside, case):
    _, plain = outside
    text, reason = HEADS[case]
    host = f"good.example.com:{plain.port}"
    answer = world.exchange(gateway.address, text.format(u=f"http://{host}/", h=host).encode())
    assert body_of(answer)["reason"] == reason
    assert reason in [one.reason for one in gateway.records()]
    assert plain.seen == []


def test_a_second_request_on_the_connection_is_not_passed_on(gateway, outside):
    _, plain = outside
    host = f"good.example.com:{plain.port}"
    one = f"GET http://{host}/1 HTTP/1.1\r\nHost: {host}\r\n\r\n"
    two = "GET /2 HTTP/1.1\r\nHost: evil.example.net\r\n\r\n"
    assert b"hello" in world.exchange(gateway.address, (one + two + one).encode())
    assert [path for _, path, _, _ in plain.seen] == ["/1"]


def test_a_head_without_end_is_refused(gateway):
    answer = world.exchange(gateway.address, b"GET http://good.example.com/ HTTP/1.1\r\nX: " + b"a" * 70_000)
    assert answer == b"" or body_of(answer)["reason"] == "bad_request"


RAW = {
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "http": b"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n",
    "nothing of TLS": b"\x00" * 64,
    "SSLv2": bytes.fromhex("802e0100020015000000100100800200800300800400800500800600") + b"0" * 20,
    "application data": b"\x17\x03\x03\x00\x05hello",
    "a server's hello": b"\x16\x03\x03\x00\x05\x02\x00\x00\x01\x00",
    "a record of no length": b"\x16\x03\x01\x00\x00",
    "a record too long": b"\x16\x03\x01\xff\xff" + b"\x01" * 100,
}


@pytest.mark.parametrize("case", RAW)
def test_bytes_that_are_not_tls_do_not_pass_a_tunnel(gateway, outside, case):
    secure, _ = outside
    sock, head = world.connect(gateway.address, f"good.example.com:{secure.port}")
    assert b" 200 " in head
    with sock:
        sock.sendall(RAW[case])
        assert body_of(world.drain(sock))["reason"] == "raw"
    assert gateway.reasons() == [("good.example.com", "raw")]
    assert secure.seen == []


@pytest.mark.parametrize(("name", "reason"), [("evil.example.net", "sni_mismatch"), (None, "no_sni"), ("other.example.com", "sni_mismatch")])  # fmt: skip
def test_the_server_name_must_be_the_host(gateway, outside, ca, name, reason):
    secure, _ = outside
    sock, _ = world.connect(gateway.address, f"good.example.com:{secure.port}")
    with sock, pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
        world.tls(sock, ca, name)
    assert gateway.reasons() == [("good.example.com", reason)]
    assert secure.seen == []


def client_hello(name: str) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    made = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        made.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(("name", "passes"), [("good.example.com", True), ("evil.example.net", False)])
def test_a_hello_in_pieces_is_read_whole(gateway, outside, name, passes):
    secure, _ = outside
    hello = client_hello(name)
    pieces = [hello[5:][at : at + 40] for at in range(0, len(hello) - 5, 40)]
    records = b"".join(b"\x16\x03\x01" + len(one).to_bytes(2, "big") + one for one in pieces)
    sock, _ = world.connect(gateway.address, f"good.example.com:{secure.port}")
    with sock:
        for at in range(0, len(records), 30):
            sock.sendall(records[at : at + 30])
            time.sleep(0.001)
        answer = sock.recv(5)
    assert answer[:1] == (b"\x16" if passes else b"\x15")


def test_a_name_that_turns_to_an_address_inside_is_refused(gateway, outside):
    _, plain = outside
    inside = ("127.0.0.1", "169.254.169.254", "172.16.0.1", "10.0.0.1", "192.168.1.1", "::1", "fd00::1", "0.0.0.0")
    names = {f"r{number}.example.com": (address,) for number, address in enumerate(inside)}
    gateway.allow(*names, hosts=names)
    for name in names:
        assert body_of(get(gateway, f"http://{name}/"))["reason"] == "not_global"
    assert gateway.reasons() == [(name, "not_global") for name in names]
    assert [one.address for one in gateway.records()] == list(inside)
    assert plain.connections == 0


def test_a_name_that_nobody_knows(gateway):
    gateway.allow("nowhere.invalid")
    answer = get(gateway, "http://nowhere.invalid/")
    assert answer.startswith(b"HTTP/1.1 502")
    assert body_of(answer)["reason"] == "unresolvable"
    assert body_of(answer)["error"] == "egress to nowhere.invalid:80 does not resolve: its name has no address"


def test_a_port_where_nobody_listens(gateway):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        gateway.allow(f"good.example.com:{port}", f"127.0.0.1:{port}")
        told = body_of(get(gateway, f"http://good.example.com:{port}/"))
        assert told["error"] == f"egress to good.example.com:{port} failed: it cannot be reached"
        assert told["hint"] == "Connection refused"
        sock, head = world.connect(gateway.address, f"good.example.com:{port}")
        with sock:
            assert b" 502 " in head


def test_rules_change_without_a_restart(gateway, outside):
    _, plain = outside
    url = f"http://other.example.com:{plain.port}/"
    assert body_of(get(gateway, url))["reason"] == "not_allowed"
    gateway.allow(f"other.example.com:{plain.port}", f"127.0.0.1:{plain.port}")
    assert b"hello" in get(gateway, url)
    gateway.allow(
        f"*.example.com:{plain.port}", f"127.0.0.1:{plain.port}", EgressRule("other.example.com", Effect.DENY)
    )
    assert body_of(get(gateway, url))["reason"] == "denied"


def test_a_policy_that_cannot_be_read_lets_nothing_pass(gateway, outside):
    _, plain = outside
    (gateway.folder / "policy/policy.json").write_text("{")
    assert body_of(get(gateway, f"http://good.example.com:{plain.port}/"))["reason"] == "no_policy"
    (gateway.folder / "policy/policy.json").unlink()
    assert body_of(get(gateway, f"http://good.example.com:{plain.port}/"))["reason"] == "no_policy"


def slow(gateway, outside, ca, kind):
    """A download that runs, through a tunnel or as plain HTTP."""
    secure, plain = outside
    if kind == "tunnel":
        sock, _ = world.connect(gateway.address, f"good.example.com:{secure.port}")
        sock = world.tls(sock, ca, "good.example.com")
        sock.sendall(b"GET /slow HTTP/1.1\r\nHost: good.example.com\r\n\r\n")
    else:
        sock = socket.create_connection(gateway.address, 30)
        host = f"good.example.com:{plain.port}"
        sock.sendall(f"GET http://{host}/slow HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert sock.recv(1000)
    return sock


def read_to_the_end(sock):
    while sock.recv(65536):
        pass


@pytest.mark.parametrize("kind", ["tunnel", "plain"])
@pytest.mark.parametrize("how", ["revoked", "denied", "expired", "address"])
def test_what_is_no_longer_allowed_is_cut(gateway, outside, ca, kind, how):
    port = outside[0 if kind == "tunnel" else 1].port
    soon = time.time() + 3.0
    kept = gateway.rules
    if how == "expired":
        gateway.allow(EgressRule(f"good.example.com:{port}", until=soon), f"127.0.0.1:{port}")
    with slow(gateway, outside, ca, kind) as sock:
        if how == "revoked":
            gateway.allow()
        elif how == "denied":
            gateway.allow(*kept, EgressRule("*.example.com", Effect.DENY))
        elif how == "address":
            gateway.allow(f"good.example.com:{port}")
        with pytest.raises(OSError):  # a reset, not an end: half a file must not look whole
            read_to_the_end(sock)
    if how == "expired":
        assert time.time() >= soon
    end = world.until(lambda: [one for one in gateway.records() if one.ended], "the end is on record")[0]
    assert end.reason == "revoked"
    assert end.received_bytes > 0


def test_asking_what_would_decide(gateway, outside):
    secure, _ = outside
    said = ask.ask(gateway.address, "good.example.com", secure.port)
    assert (said.allowed, said.rule) == (True, f"good.example.com:{secure.port}")
    said = ask.ask(gateway.address, "good.example.com", 22)
    assert (said.allowed, said.reason) == (False, "not_allowed")
    assert ask.ask(gateway.address, "a&port=1", 443).reason == "bad_host"
    assert secure.connections == 0
    (gateway.folder / "policy/policy.json").unlink()
    assert ask.ask(gateway.address, "good.example.com", 443).reason == "no_policy"


def test_too_many_connections_are_told_so_and_leave_room_again(gateway, outside):
    _, plain = outside
    gateway.stop()
    gateway.start("--most", "20")
    held = [socket.create_connection(gateway.address, 30) for _ in range(20)]
    url = f"http://good.example.com:{plain.port}/"
    world.until(lambda: b"503" in get(gateway, url)[:20], "the twenty-first is refused")
    for sock in held:
        sock.close()
    world.until(lambda: b"200" in get(gateway, url)[:20], "there is room again")


def test_a_thousand_tunnels_at_once(gateway, outside, ca):
    secure, _ = outside
    hello = client_hello("good.example.com")
    held = []
    try:
        for _ in range(1000):
            sock = socket.create_connection(gateway.address, 30)
            held.append(sock)
            sock.sendall(f"CONNECT good.example.com:{secure.port} HTTP/1.1\r\n\r\n".encode() + hello)
        for sock in held:
            got = b""
            while b"\r\n\r\n\x16" not in got:
                part = sock.recv(4096)
                assert part, got
                got += part
        assert b"hello" in https(gateway, ca, f"good.example.com:{secure.port}", "good.example.com")
        status = Path(f"/proc/{gateway.pid}/status").read_text()
        rss = int(status.partition("VmRSS:")[2].split()[0])
        assert rss < 80_000, "the memory of a thousand tunnels is bounded"
    finally:
        for sock in held:
            sock.close()
    world.until(lambda: sum(one.ended for one in gateway.records()) == 1001, "every end is on record")
