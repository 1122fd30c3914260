"""Asks a running gateway what it would decide about a host, without connecting to the host."""

from __future__ import annotations

import json
import socket
from typing import Any
from urllib.parse import urlencode

from sandbox_console.model.egress import EgressVerdict

ANSWER_S = 5.0
_MOST = 65536


def ask(address: tuple[str, int], host: str, port: int) -> EgressVerdict:
    """The gateway's verdict. Raises OSError if nobody answers, ValueError if the answer is not a verdict."""
    with socket.create_connection(address, ANSWER_S) as sock:
        return exchange(sock, host, port)


def exchange(sock: socket.socket, host: str, port: int) -> EgressVerdict:
    """The gateway's verdict, over a connection that is already open."""
    sock.settimeout(ANSWER_S)
    query = urlencode({"host": host, "port": port})
    sock.sendall(f"GET /verdict?{query} HTTP/1.1\r\nHost: gateway\r\n\r\n".encode())
    data = b""
    while len(data) < _MOST and (part := sock.recv(_MOST)):
        data += part
    return parse(json.loads(data.partition(b"\r\n\r\n")[2] or b"{}"))


def parse(answer: Any) -> EgressVerdict:
    """A verdict from the gateway's JSON, which may refuse to give one. Raises ValueError."""
    if not isinstance(answer, dict) or "reason" not in answer:
        raise ValueError("the gateway's answer cannot be understood")
    texts = {name: str(answer.get(name, "")) for name in ("reason", "rule", "hint")}
    return EgressVerdict(answer.get("allowed") is True, **texts)
