"""Answers to a sandbox: HTTP responses with a JSON body."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sandbox_console.model.egress import REASONS, EgressVerdict, Outcome, outcome_of

_STATUS = {
    "bad_request": "400 Bad Request",
    "unresolvable": "502 Bad Gateway",
    "unreachable": "502 Bad Gateway",
    "too_many": "503 Service Unavailable",
    "timeout": "504 Gateway Timeout",
}

_OUTCOMES = {Outcome.DENIED: "is refused", Outcome.UNRESOLVED: "does not resolve", Outcome.FAILED: "failed"}

UNRECOGNIZED_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
"""A fatal TLS alert (RFC 8446, 6.2), so that clients can say why a handshake failed."""

CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def refusal(sandbox: str, host: str, port: int, reason: str, detail: str = "") -> bytes:
    """The answer to a request that was refused or failed; its status is 403 if the rules refused it."""
    to = f"egress to {host}:{port}" if host else "egress"
    text = f"{to} {_OUTCOMES[outcome_of(reason, allowed=False)]}: {REASONS[reason]}"
    body = {"error": text, "reason": reason, "host": host, "hint": detail or _hint(sandbox, host, port, reason)}
    return answer(_STATUS.get(reason, "403 Forbidden"), body)


def verdict_answer(verdict: EgressVerdict) -> bytes:
    """The answer to a query for a verdict."""
    body = {"allowed": verdict.allowed, "reason": verdict.reason, "rule": verdict.rule, "hint": verdict.hint}
    return answer("200 OK", body)


def answer(status: str, body: Mapping[str, object]) -> bytes:
    """An HTTP response after which the connection is closed."""
    data = json.dumps(body).encode() + b"\n"
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    return head.encode() + b"Cache-Control: no-store\r\nConnection: close\r\n\r\n" + data


def _hint(sandbox: str, host: str, port: int, reason: str) -> str:
    if reason == "not_allowed":
        shown = f"[{host}]" if ":" in host else host
        return f"on the host: sandbox-console egress allow {sandbox} {shown}{'' if port in (80, 443) else f':{port}'}"
    if reason == "denied":
        return f"on the host: sandbox-console egress show {sandbox}"
    if reason in ("no_sni", "raw", "sni_mismatch"):
        return "only TLS whose server name is the host that was asked for passes a tunnel"
    return ""
