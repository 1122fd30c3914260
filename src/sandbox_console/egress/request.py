"""Parses requests to a proxy (RFC 9112), so strictly that no other parser can understand them differently."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs

from sandbox_console.egress.decide import named

HEAD_MOST = 16 * 1024
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_TARGET = re.compile(rb"[\x21-\x7e]+\Z")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*\Z")
_DIGITS = re.compile(rb"[0-9]{1,18}\Z")
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
# Headers of one connection, or of the hop to the proxy, are never passed on.
_HOP = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"proxy-authorization",
     b"proxy-authenticate", b"transfer-encoding", b"content-length", b"host", b"http2-settings"}
)  # fmt: skip


class BadRequest(ValueError):
    """A request is refused. ``reason`` is a key of ``model.egress.REASONS``; ``host`` and ``port`` are set if known."""

    def __init__(self, text: str, reason: str = "bad_request", host: str = "", port: int = 0) -> None:
        super().__init__(text)
        self.reason, self.host, self.port = reason, host, port


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``host`` is normalised; ``length`` is the body's in bytes, None if it is chunked.

    ``target`` is what the origin server is asked for; ``query`` is set for a query to the gateway itself.
    """

    method: str
    host: str
    port: int
    target: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    length: int | None = 0
    query: str | None = None

    def head(self) -> bytes:
        """The head that the origin server gets, for a single request on its connection."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        authority = host if self.port == 80 else f"{host}:{self.port}"
        lines = [self.method.encode() + b" " + self.target + b" HTTP/1.1", b"Host: " + authority.encode()]
        lines += [name + b": " + value for name, value in self.headers]
        if self.length is None:
            lines.append(b"Transfer-Encoding: chunked")
        elif self.length or self.method in ("POST", "PUT", "PATCH"):
            lines.append(b"Content-Length: %d" % self.length)
        return b"\r\n".join([*lines, b"Connection: close", b"", b""])


def parse(head: bytes) -> Request:
    """Parse a head, up to and including its empty line. Raises BadRequest."""
    lines = head.split(b"\r\n")
    if lines[-2:] != [b"", b""] or b"\n" in b"".join(lines) or b"\r" in b"".join(lines):
        raise BadRequest("the lines of the request do not end in CR LF")
    method, target, version = _request_line(lines[0])
    fields = _fields(lines[1:-2])
    if target.startswith(b"/") and method != "CONNECT":
        return _question(method, target)
    host, port, path = _authority(target) if method == "CONNECT" else _absolute(target)
    name = named(host)
    if not name:
        raise BadRequest(f"{host!r} is not a host name", "bad_host", host, port)
    try:
        _check_host(fields, name, port, version, connect=method == "CONNECT")
        length = _length(fields, version, connect=method == "CONNECT")
    except BadRequest as error:
        error.host, error.port = name, port
        raise
    return Request(method, name, port, path, _passed_on(fields), length)


def _request_line(line: bytes) -> tuple[str, bytes, bytes]:
    parts = line.split(b" ")
    if len(parts) != 3 or not _TOKEN.match(parts[0]) or not _TARGET.match(parts[1]) or parts[2] not in _VERSIONS:
        raise BadRequest("the first line is not METHOD TARGET HTTP/1.1")
    return parts[0].decode(), parts[1], parts[2]


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not _TOKEN.match(name) or not _VALUE.match(value):
            raise BadRequest("a header line is malformed")
        fields.append((name, value.strip(b" \t")))
    return fields


def _authority(text: bytes, default: int = 0) -> tuple[str, int, bytes]:
    host, colon, digits = text.rpartition(b":")
    if not colon or digits.endswith(b"]"):
        host, digits = text, b"%d" % default
    shown = host.decode("ascii", "backslashreplace")
    if not _DIGITS.match(digits) or not 0 < int(digits) < 65536 or not host or b"@" in host:
        raise BadRequest("the target is not HOST:PORT", host=shown[:253])
    return shown, int(digits), b""


def _absolute(target: bytes) -> tuple[str, int, bytes]:
    scheme, colon, rest = target.partition(b"://")
    if not colon:
        raise BadRequest("the target is not an absolute URL")
    if scheme.lower() != b"http":
        raise BadRequest("only http:// is forwarded; other schemes go through CONNECT")
    end = min((at for at in (rest.find(b"/"), rest.find(b"?"), rest.find(b"#")) if at >= 0), default=len(rest))
    host, port, _ = _authority(rest[:end], 80)
    path = rest[end:].partition(b"#")[0]
    return host, port, path if path.startswith(b"/") else b"/" + path


def _check_host(fields: list[tuple[bytes, bytes]], name: str, port: int, version: bytes, *, connect: bool) -> None:
    found = [value for key, value in fields if key.lower() == b"host"]
    if len(found) > 1 or (not found and version == b"HTTP/1.1" and not connect):
        raise BadRequest("it needs exactly one Host header")
    if found and not connect:  # that of a CONNECT is not passed on, and clients name the proxy in it
        host, other, _ = _authority(found[0], 80)
        if named(host) != name or other != port:
            raise BadRequest(f"the Host header names {host}, not {name}", "host_mismatch")


def _length(fields: list[tuple[bytes, bytes]], version: bytes, *, connect: bool) -> int | None:
    lengths = [value for key, value in fields if key.lower() == b"content-length"]
    codings = [value for key, value in fields if key.lower() == b"transfer-encoding"]
    if connect and (codings or set(lengths) - {b"0"}):
        raise BadRequest("a CONNECT request has no body")
    if codings:
        if lengths or len(codings) > 1 or codings[0].lower() != b"chunked" or version == b"HTTP/1.0":
            raise BadRequest("its length is given in two ways, or in an unknown one")
        return None
    if len(lengths) > 1 or (lengths and not _DIGITS.match(lengths[0])):
        raise BadRequest("its Content-Length is malformed")
    return int(lengths[0]) if lengths else 0


def _passed_on(fields: list[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    named_hop = {
        one.strip().lower() for key, value in fields if key.lower() == b"connection" for one in value.split(b",")
    }
    gone = _HOP | named_hop
    return tuple((key, value) for key, value in fields if key.lower() not in gone)


def _question(method: str, target: bytes) -> Request:
    path, _, query = target.decode("ascii").partition("?")
    if method != "GET" or path != "/verdict":
        raise BadRequest("this is the sandbox's egress gateway: use it as a proxy")
    try:
        query_fields = parse_qs(query, strict_parsing=True, max_num_fields=2)
        [host], [port] = query_fields["host"], query_fields["port"]
        return Request("GET", host, int(port), query=query)
    except (ValueError, KeyError):
        raise BadRequest("ask /verdict?host=HOST&port=PORT") from None


def chunk_size(line: bytes) -> int:
    """The size in a chunk's first line, without its extensions. Raises BadRequest."""
    digits = line.partition(b";")[0].strip(b" \t")
    if not re.match(rb"[0-9A-Fa-f]{1,15}\Z", digits) or not _VALUE.match(line):
        raise BadRequest("a chunk's size is malformed")
    return int(digits, 16)


def response_head(head: bytes) -> tuple[int, bytes]:
    """A response's status, and its head rewritten for a connection that is closed after it. Raises BadRequest."""
    first, *lines = head.split(b"\r\n")
    parts = first.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or not re.match(rb"[1-5][0-9]{2}\Z", parts[1]):
        raise BadRequest("the answer is not HTTP/1")
    status = int(parts[1])
    if 100 <= status < 200:
        return status, head
    kept = [line for line in lines[:-2] if line.partition(b":")[0].strip().lower() not in _OF_CONNECTION]
    return status, b"\r\n".join([first, *kept, b"Connection: close", b"", b""])


_OF_CONNECTION = (b"connection", b"keep-alive", b"proxy-connection", b"upgrade", b"proxy-authenticate")
