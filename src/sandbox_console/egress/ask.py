"""Ask a running gateway, at its door, what it decides; nothing is connected."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlencode

ANSWER_S = 5.0
_MOST = 65536


def ask(address: tuple[str, int], host: str, port: int) -> dict[str, Any]:
    """The verdict as plain data. Raises OSError where nobody answers, ValueError for another answer."""
    with socket.create_connection(address, ANSWER_S) as sock:
        return exchange(sock, host, port)


def exchange(sock: socket.socket, host: str, port: int) -> dict[str, Any]:
    """The same over a connection that is there."""
    sock.settimeout(ANSWER_S)
    query = urlencode({"host": host, "port": port})
    sock.sendall(f"GET /verdict?{query} HTTP/1.1\r\nHost: gateway\r\n\r\n".encode())
    data = b""
    while len(data) < _MOST and (part := sock.recv(_MOST)):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    status, answer = head.split(b" ", 2)[1:2], json.loads(body)
    if not isinstance(answer, dict) or (status != [b"200"] and "reason" not in answer):
        raise ValueError("the gateway's answer cannot be understood")
    return {"allowed": False, **answer}
