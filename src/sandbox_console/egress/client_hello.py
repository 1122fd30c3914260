"""Reads the server name in the first bytes of a TLS connection (RFC 8446, RFC 6066). Pure."""

from __future__ import annotations

MOST = 16 * 1024
"""The most bytes of a ClientHello with its record headers. One with post-quantum keys has about 2 KiB."""

_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0
_RECORD_MOST = 1 << 14
_RECORDS_MOST = 64


class NotTLS(ValueError):
    """The bytes are not a ClientHello, or are one that two parsers could understand differently."""


def server_name(data: bytes) -> str | None:
    """The server name of a ClientHello, empty if it has none; None while more bytes are needed.

    The message may be spread over any number of TLS records. Raises NotTLS.
    """
    found = _message(data)
    if found is None:
        return None
    try:
        return _name(_extensions(found[0]))
    except IndexError:
        raise NotTLS("a length in the ClientHello is beyond its end") from None


def size(data: bytes) -> int:
    """How many bytes the records of a ClientHello take, 0 while more bytes are needed. Raises NotTLS."""
    found = _message(data)
    return found[1] if found else 0


def _message(data: bytes) -> tuple[bytes, int] | None:
    """The handshake message's body, joined from its records, and where they end; None while more bytes are needed."""
    body, at = b"", 0
    for _ in range(_RECORDS_MOST):
        if len(body) >= 4:
            if body[0] != _CLIENT_HELLO:
                raise NotTLS("the first handshake message is no ClientHello")
            end = 4 + int.from_bytes(body[1:4], "big")
            if end > MOST:
                raise NotTLS("the ClientHello is too long")
            if len(body) >= end:
                if len(body) > end:
                    raise NotTLS("something follows the ClientHello in its record")
                return body[4:end], at
        head = data[at : at + 5]
        _check_head(head)
        if len(head) < 5:
            return None
        length = int.from_bytes(head[3:5], "big")
        body += data[at + 5 : at + 5 + length]
        at += 5 + length
        if at > len(data):
            _check_start(body)
            return None
    raise NotTLS("the ClientHello is in too many records")


def _check_head(head: bytes) -> None:
    if head[:1] not in (b"", b"\x16") or head[1:2] not in (b"", b"\x03"):
        raise NotTLS("it is no TLS handshake record")
    if len(head) == 5 and not 0 < int.from_bytes(head[3:5], "big") <= _RECORD_MOST:
        raise NotTLS("a TLS record has a length that none may have")


def _check_start(body: bytes) -> None:
    if body and body[0] != _CLIENT_HELLO:
        raise NotTLS("the first handshake message is no ClientHello")


def _extensions(message: bytes) -> dict[int, bytes]:
    at = 2 + 32  # version, random
    at += 1 + message[at]  # session id
    at += 2 + _number(message, at)  # cipher suites
    at += 1 + message[at]  # compression methods
    if at == len(message):
        return {}
    end = at + 2 + _number(message, at)
    if end != len(message):
        raise NotTLS("the extensions do not end where the ClientHello does")
    found: dict[int, bytes] = {}
    at += 2
    while at < end:
        kind, length = _number(message, at), _number(message, at + 2)
        if kind in found:
            raise NotTLS("an extension comes twice")
        at += 4 + length
        if at > end:
            raise IndexError
        found[kind] = message[at - length : at]
    return found


def _name(extensions: dict[int, bytes]) -> str:
    data = extensions.get(_SERVER_NAME)
    if data is None:
        return ""
    length = _number(data, 3)
    if _number(data, 0) != len(data) - 2 or data[2] != _HOST_NAME or length != len(data) - 5 or not length:
        raise NotTLS("it has not exactly one server name")
    try:
        return data[5:].decode("ascii")
    except UnicodeDecodeError:
        raise NotTLS("the server name is not ASCII") from None


def _number(data: bytes, at: int) -> int:
    return data[at] << 8 | data[at + 1]
