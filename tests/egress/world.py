"""Servers on this machine that stand for the world: an own CA, HTTPS and HTTP, each request of which is kept."""

from __future__ import annotations

import contextlib
import http.server
import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

NAMES = ("good.example.com", "other.example.com", "*.wild.example.org", "evil.example.net")


def make_ca(folder: Path) -> Path:
    """A CA and a certificate of it for NAMES: ca.pem, cert.pem, key.pem. Skips nothing: openssl is everywhere we test."""
    assert shutil.which("openssl"), "openssl is needed"
    folder.mkdir(parents=True, exist_ok=True)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ",".join(f"DNS:{name}" for name in NAMES) + ",IP:127.0.0.1"
    steps = (
        ("req", "-x509", *curve, "-subj", "/CN=Test CA", "-keyout", "ca.key", "-out", "ca.pem",
         "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        ("req", *curve, "-subj", "/CN=good.example.com", "-keyout", "key.pem", "-out", "req.pem"),
        ("x509", "-req", "-in", "req.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
         "-out", "cert.pem", "-extfile", "ext.cnf"),
    )  # fmt: skip
    (folder / "ext.cnf").write_text(f"subjectAltName={names}\nextendedKeyUsage=serverAuth\n")
    for words in steps:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    (folder / "ca.pem").chmod(0o644)
    return folder


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        self.server.seen.append((self.headers.get("Host"), self.path, dict(self.headers.items()), b""))
        if self.path == "/slow":
            self._slow()
            return
        self._answer(b"hello from " + str(self.headers.get("Host")).encode())

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.headers.get("Host"), self.path, dict(self.headers.items()), body))
        self._answer(b"got %d bytes" % len(body))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _slow(self) -> None:
        """A download without end, a line every 20 ms."""
        self.send_response(200)
        self.send_header("Content-Length", "1000000000")
        self.end_headers()
        with contextlib.suppress(OSError):
            while not self.server.closing:
                self.wfile.write(b"x" * 1024)
                time.sleep(0.02)

    def log_message(self, format: str, *args: Any) -> None:
        """Said to nobody."""


class Server(http.server.ThreadingHTTPServer):
    """One server; ``seen`` has (Host, path, headers, body) of each request, ``connections`` counts TCP connections."""

    daemon_threads = True
    request_queue_size = 1024

    def server_bind(self) -> None:
        """Without the library's question for its own name, which waits 10 s in a network without a resolver."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0), ca: Path | None = None) -> None:
        super().__init__(address, _Handler)
        self.seen: list[tuple[Any, ...]] = []
        self.connections = 0
        self.closing = False
        self._context: ssl.SSLContext | None = None
        if ca is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(ca / "cert.pem", ca / "key.pem")
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self.server_address[1]

    def finish_request(self, request: Any, client_address: Any) -> None:
        self.connections += 1
        if self._context is not None:
            request.settimeout(20)
            request = self._context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)
        if self._context is not None:
            request.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks off is what is tested."""

    def close(self) -> None:
        self.closing = True
        self.shutdown()
        self.server_close()
        self._thread.join()


@contextlib.contextmanager
def servers(ca: Path) -> Iterator[tuple[Server, Server]]:
    """An HTTPS and an HTTP server."""
    secure, plain = Server(ca=ca), Server()
    try:
        yield secure, plain
    finally:
        secure.close()
        plain.close()


def until(look: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


def exchange(address: tuple[str, int], data: bytes, *, end: bool = False) -> bytes:
    """Send bytes, read to the end."""
    with socket.create_connection(address, 30) as sock:
        sock.sendall(data)
        if end:
            sock.shutdown(socket.SHUT_WR)
        return drain(sock)


def drain(sock: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):  # a server that ends without a goodbye
        while part := sock.recv(65536):
            found += part
    return found


def connect(address: tuple[str, int], target: str, extra: str = "") -> tuple[socket.socket, bytes]:
    """A CONNECT through a proxy: the socket, and the head of the answer with what of the body came with it."""
    sock = socket.create_connection(address, 30)
    sock.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{extra}\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        part = sock.recv(4096)
        if not part:
            break
        head += part
    return sock, head


def tls(sock: socket.socket, ca: Path, name: str | None) -> ssl.SSLSocket:
    """TLS over a tunnel, with the server name that is said; None says none."""
    context = ssl.create_default_context(cafile=str(ca / "ca.pem"))
    context.check_hostname = False
    # An end without TLS's own goodbye is an error, as for every client that looks.
    return context.wrap_socket(sock, server_hostname=name, suppress_ragged_eofs=False)
