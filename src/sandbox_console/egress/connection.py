"""One connection from a sandbox to the outside: the decision, the bytes that passed, and the record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from sandbox_console.egress.addresses import Address
from sandbox_console.egress.relay import Relay
from sandbox_console.model.egress import EgressRecord


class Refused(Exception):
    """The gateway refuses a connection; ``reason`` is a key of ``model.egress.REASONS``."""

    def __init__(self, reason: str, *, rule: str = "", detail: str = "", address: str = "") -> None:
        super().__init__(reason)
        self.reason, self.rule, self.detail, self.address = reason, rule, detail, address


@dataclass(eq=False)
class Connection:
    """One request or tunnel that the rules currently allow."""

    host: str
    port: int
    method: str
    rule: str
    task: asyncio.Task[None]
    address: Address | None = None
    began: float = 0.0
    sent: int = 0
    received: int = 0
    relay: Relay | None = None
    reason: str = ""
    told: bool = False  # whether the record that allows it has been written
    quiet_since: float = 0.0

    def cut(self, reason: str) -> None:
        """End the connection from outside: its task is cancelled and finds the reason here."""
        if not self.reason:
            self.reason = reason
            self.task.cancel()

    def count(self) -> None:
        """Take over the byte counts of a relay."""
        if self.relay is not None:
            self.sent += self.relay.up.bytes
            self.received += self.relay.down.bytes
            self.relay = None


class ConnectionRecords:
    """Writes a sandbox's records."""

    def __init__(self, write: Callable[[EgressRecord], None]) -> None:
        self._write = write
        self.sandbox = ""

    def refused(self, host: str, port: int, method: str, refused: Refused) -> None:
        """Record a connection that was refused."""
        self._record(host, port, method, False, refused.reason, refused.rule, refused.address)

    def allowed(self, flow: Connection) -> None:
        """Record a connection that was allowed."""
        flow.began, flow.told = time.monotonic(), True
        self._record(flow.host, flow.port, flow.method, True, "", flow.rule, str(flow.address))

    def ended(self, flow: Connection) -> None:
        """Record the end of an allowed connection."""
        flow.count()
        if not flow.told:
            return
        self._write(
            EgressRecord(
                time.time(), self.sandbox, flow.host, flow.port, True, flow.reason, flow.rule, str(flow.address),
                flow.method, ended=True, sent_bytes=flow.sent, received_bytes=flow.received,
                duration_s=round(time.monotonic() - flow.began, 6),
            )
        )  # fmt: skip

    def _record(self, host: str, port: int, method: str, ok: bool, reason: str, rule: str, address: str) -> None:
        record = EgressRecord(time.time(), self.sandbox, host[:255], port, ok, reason, rule, address, method[:16])
        self._write(record)
