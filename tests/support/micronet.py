"""The outside world of a microVM, on this machine alone: a name server, a web server with TLS, an authority.

A public address is put on the loopback, for the runtime takes no private one from a name server. So it runs as root
in a machine or a network namespace of its own, never beside a real network.
"""

from __future__ import annotations

import http.server
import ipaddress
import json
import socket
import ssl
import struct
import subprocess
import threading
from pathlib import Path

ADDRESS = "1.2.3.4"


class World:
    """Names ``hosts`` lead to one web server on ports 80 and 443, which keeps the requests it was sent."""

    def __init__(self, folder: Path, hosts: tuple[str, ...]) -> None:
        self.hosts = hosts
        self.authority = folder / "authority.pem"
        self.requests: list[dict[str, str]] = []
        self._folder = folder
        self._servers: list[http.server.HTTPServer] = []
        self._names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def start(self) -> None:
        subprocess.run(["busybox", "ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"], check=False, capture_output=True)
        self._certify()
        Path("/etc/resolv.conf").write_text("nameserver 127.0.0.1\n")
        self._names.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._names.bind(("127.0.0.1", 53))
        threading.Thread(target=self._answer, daemon=True).start()
        for port in (80, 443):
            server = http.server.ThreadingHTTPServer((ADDRESS, port), self._handler())
            if port == 443:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self._folder / "server.pem", self._folder / "server.key")
                server.socket = context.wrap_socket(server.socket, server_side=True)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self._servers.append(server)

    def stop(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._names.close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        seen = self.requests

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.append({"path": self.path, **{key.lower(): value for key, value in self.headers.items()}})
                body = json.dumps({"host": self.headers["Host"]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler

    def _answer(self) -> None:
        """A name server of RFC 1035 that knows type A of the hosts."""
        while True:
            try:
                query, client = self._names.recvfrom(512)
            except OSError:
                return
            name, at = "", 12
            while length := query[at]:
                name += query[at + 1 : at + 1 + length].decode() + "."
                at += length + 1
            question, kind = query[12 : at + 5], struct.unpack(">H", query[at + 1 : at + 3])[0]
            known = name.rstrip(".").lower() in self.hosts
            answer = known and kind == 1
            head = query[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, int(answer), 0, 0)
            record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + ipaddress.ip_address(ADDRESS).packed
            self._names.sendto(head + question + (record if answer else b""), client)

    def _certify(self) -> None:
        """An authority and a certificate of the hosts by it."""
        names = ",".join(f"DNS:{host}" for host in self.hosts)
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        ca = [*key, "-subj", "/CN=test authority", "-keyout", "authority.key", "-out", "authority.pem"]
        self._openssl("req", "-x509", *ca, "-addext", "basicConstraints=critical,CA:TRUE")
        asked = [*key, "-subj", "/CN=test", "-keyout", "server.key", "-out", "server.pem", "-addext"]
        by = ["-CA", "authority.pem", "-CAkey", "authority.key", "-addext", "basicConstraints=critical,CA:FALSE"]
        self._openssl("req", "-x509", *asked, f"subjectAltName={names}", *by)

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self._folder, check=True, capture_output=True)
