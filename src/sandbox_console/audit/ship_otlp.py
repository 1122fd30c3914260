"""Ships the log to a collector of OpenTelemetry by OTLP/HTTP: each row as a log record, and traced actions as spans.

An action whose caller was traced is a span, the child of its caller's. A row arrives at least once: it carries the id
of its log and its own number, by which a receiver drops what it has.
Protocol: https://opentelemetry.io/docs/specs/otlp/#otlphttp
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import unquote, urlsplit

from sandbox_console.audit import query
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.schema import COLUMNS
from sandbox_console.audit.ship import ShipFailed, send_new
from sandbox_console.errors import ConfigError, NotFound, Unsupported
from sandbox_console.model.trace import TraceParent, parse_traceparent
from sandbox_console.version import __version__

if TYPE_CHECKING:
    import aiohttp
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

_TIMEOUT_S = 30.0
_ANSWER_MOST = 65536
_NOT_TAKEN_HERE = (404, 405, 501)
_SCOPE = "sandbox_console.audit"
_ENDS = ("outcome", "unknown")
_ATTRIBUTES = ("seq", "kind", "ref", "actor", "session", "request_id", "action", "backend", "target", "outcome",
               "dur_us", "body")  # fmt: skip

Fields = Mapping[str, Any]


def parse_headers(text: str) -> dict[str, str]:
    """Headers as OTEL_EXPORTER_OTLP_HEADERS has them: ``name=value,name=value``. Raises ConfigError without a value."""
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, sign, value = part.partition("=")
        if not sign or not name.strip():
            raise ConfigError(
                "audit.ship.otlp_headers: these are no headers", hint="write them as name=value,name=value"
            )
        found[name.strip()] = unquote(value.strip())
    return found


def checked_url(url: str, *, secret: bool) -> str:
    """The collector's base. Raises ConfigError if it is none, or if secret headers would go there unencrypted."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise ConfigError(f"audit.ship.otlp: {url!r} is not the address of a collector", hint="https://HOST:4318")
    if secret and parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "::1", "localhost"):
        hint = "use https, or a collector on this machine that passes them on"
        raise ConfigError(f"audit.ship.otlp: {url} would get the headers unencrypted", hint=hint)
    return url


async def ship(path: Path, url: str, headers: Mapping[str, str]) -> int:
    """Send the rows that have not been sent yet. Returns how many. Raises ShipFailed, AuditUnavailable, Unsupported.

    ``url`` is the collector's base, such as http://127.0.0.1:4318.
    """
    return await send_new(path, Layout(path).otlp_cursor, Collector(path, url, headers))


class Collector:
    """A connection to a collector."""

    def __init__(self, path: Path, url: str, headers: Mapping[str, str]) -> None:
        self._path, self._url, self._headers = path, url.rstrip("/"), dict(headers)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        try:
            import opentelemetry.proto.collector.logs.v1.logs_service_pb2  # noqa: F401
        except ImportError:
            hint = "pip install 'sandbox-console-tui[otlp]'"
            raise Unsupported("shipping by OTLP needs opentelemetry-proto", hint=hint) from None
        import aiohttp

        agent = {"User-Agent": f"sandbox-console/{__version__}"}
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        self._session = aiohttp.ClientSession(timeout=timeout, headers=agent | self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, console: str, rows: Sequence[Sequence[Any]]) -> None:
        """Send rows of the log with this id. Raises ShipFailed."""
        named = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        callers = await self._callers(named)
        await self._post("/v1/logs", _logs(console, named, callers))
        if any(_ended(row, callers) for row in named):
            await self._post("/v1/traces", _traces(console, named, callers), optional=True)

    async def _callers(self, rows: Sequence[Fields]) -> dict[int, TraceParent]:
        """The callers' spans by the number of the attempt, also of attempts that were sent before."""
        found = {row["seq"]: _caller(row["body"]) for row in rows if row["kind"] == "attempt"}
        for row in rows:
            if row["kind"] in _ENDS and row["ref"] not in found:
                try:
                    entry = await query.entry(self._path, row["ref"])
                except NotFound:  # its segment was removed
                    continue
                found[row["ref"]] = _caller(json.dumps(dict(entry.attempt.body)))
        return {seq: caller for seq, caller in found.items() if caller is not None}

    async def _post(self, path: str, data: bytes, *, optional: bool = False) -> None:
        """Send one message. An ``optional`` one may be of a kind that the collector does not take at all."""
        import aiohttp

        assert self._session is not None  # noqa: S101 - inside the block only
        head = {"Content-Type": "application/x-protobuf"}
        try:
            async with self._session.post(self._url + path, data=data, headers=head, allow_redirects=False) as answer:
                body = await _whole(answer.content)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise _failed("cannot be reached", str(error) or type(error).__name__) from None
        if optional and answer.status in _NOT_TAKEN_HERE:
            return
        if answer.status != 200:
            raise _failed("did not take the rows", f"it answered {answer.status}")
        if rejected := _rejected(path, body):
            raise _failed("did not take all rows", rejected)


async def _whole(content: aiohttp.StreamReader) -> bytes:
    """An answer as far as it is looked at. It may come in parts, of which the first says nothing."""
    try:
        return await content.readexactly(_ANSWER_MOST)
    except asyncio.IncompleteReadError as ended:
        return ended.partial


def _failed(failure: str, reason: str) -> ShipFailed:
    return ShipFailed(f"the collector {failure}: {reason}", hint="they stay in the local log and are sent again")


def _rejected(path: str, body: bytes) -> str:
    """What a collector says of records that it rejected; empty if it took all."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    answer = ExportLogsServiceResponse() if path == "/v1/logs" else ExportTraceServiceResponse()
    try:
        answer.ParseFromString(body)
    except DecodeError:  # an answer in another form, with a status that says it is well
        return ""
    part = answer.partial_success
    count = part.rejected_log_records if path == "/v1/logs" else part.rejected_spans
    return f"{count} were rejected: {part.error_message}"[:300] if count else ""


def _caller(body: str) -> TraceParent | None:
    try:
        origin = json.loads(body).get("origin")
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return parse_traceparent(str(origin.get("traceparent", ""))) if isinstance(origin, dict) else None


def _ended(row: Fields, callers: Mapping[int, TraceParent]) -> bool:
    return row["kind"] in _ENDS and row["ref"] in callers


def _logs(console: str, rows: Sequence[Fields], callers: Mapping[int, TraceParent]) -> bytes:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.logs.v1.logs_pb2 import SEVERITY_NUMBER_INFO, SEVERITY_NUMBER_WARN

    request = ExportLogsServiceRequest()
    group = request.resource_logs.add(resource=_resource(console))
    scope = group.scope_logs.add()
    scope.scope.name = _SCOPE
    for row in rows:
        well = row["outcome"] in ("", "ok")
        record = scope.log_records.add(
            time_unix_nano=row["ts_ns"],
            severity_number=SEVERITY_NUMBER_INFO if well else SEVERITY_NUMBER_WARN,
            severity_text="INFO" if well else "WARN",
            attributes=_attributes(row),
        )
        record.body.string_value = " ".join(filter(None, (row["kind"], row["action"], row["target"], row["outcome"])))
        if caller := callers.get(row["seq"] if row["kind"] == "attempt" else row["ref"]):
            record.trace_id, record.span_id = caller.trace_id, caller.span_id
    data: bytes = request.SerializeToString()
    return data


def _traces(console: str, rows: Sequence[Fields], callers: Mapping[int, TraceParent]) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add(resource=_resource(console)).scope_spans.add()
    scope.scope.name = _SCOPE
    for row in (row for row in rows if _ended(row, callers)):
        caller, well = callers[row["ref"]], row["outcome"] == "ok"
        scope.spans.add(
            trace_id=caller.trace_id, parent_span_id=caller.span_id, span_id=_span_id(console, row["ref"]),
            name=row["action"], kind=Span.SPAN_KIND_INTERNAL, attributes=_attributes(row),
            start_time_unix_nano=row["ts_ns"] - 1000 * (row["dur_us"] or 0), end_time_unix_nano=row["ts_ns"],
            status=Status(code=Status.STATUS_CODE_OK if well else Status.STATUS_CODE_ERROR,
                          message="" if well else row["outcome"]),
        )  # fmt: skip
    data: bytes = request.SerializeToString()
    return data


def _span_id(console: str, attempt: int) -> bytes:
    """An id made from the row, so that a row that is sent twice has one id."""
    return hashlib.sha256(f"{console}/{attempt}".encode()).digest()[:8]


def _resource(console: str) -> Resource:
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    known = {"service.name": "sandbox-console", "service.version": __version__, "service.instance.id": console}
    return Resource(attributes=[_pair(key, value) for key, value in known.items()])


def _attributes(row: Fields) -> Iterator[KeyValue]:
    for name in _ATTRIBUTES:
        if row[name] not in (None, ""):
            yield _pair(f"{_SCOPE}.{name}", row[name])
    yield _pair(f"{_SCOPE}.hash", bytes(row["hash"]).hex())


def _pair(key: str, value: object) -> KeyValue:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    return KeyValue(key=key, value=AnyValue(string_value=str(value).encode("utf-8", "replace").decode()))
