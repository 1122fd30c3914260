"""Shipping by OTLP, to a stand-in of a collector that decodes the protocol's own messages."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.audit.conftest import SMALL, act

from sandbox_console.audit import ship_otlp
from sandbox_console.audit.journal import Journal
from sandbox_console.audit.layout import Layout
from sandbox_console.audit.ship import ShipFailed
from sandbox_console.errors import ConfigError
from sandbox_console.model import action
from sandbox_console.model.audit import Outcome
from sandbox_console.model.sandbox import Sandbox, SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.trace import caller_trace, parse_traceparent, traced
from sandbox_console.service import Config, open_console
from sandbox_console.testing.fake_backend import FakeBackend

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


class Collector:
    """Keeps what it takes. ``answers`` are given first, in place of taking."""

    def __init__(self) -> None:
        self.records: list[dict[str, object]] = []
        self.traces: list[tuple[bytes, bytes]] = []
        self.spans: list = []
        self.headers: list = []
        self.answers: list[web.Response] = []
        self.span_status = 200
        self.taken, self.answering = asyncio.Event(), asyncio.Event()
        self.answering.set()
        self.url = ""

    async def logs(self, request: web.Request) -> web.Response:
        self.headers.append(request.headers)
        sent = ExportLogsServiceRequest.FromString(await request.read())
        if self.answers:
            return self.answers.pop(0)
        for record in sent.resource_logs[0].scope_logs[0].log_records:
            values = {one.key.rpartition(".")[2]: one.value for one in record.attributes}
            self.records.append({name: getattr(value, value.WhichOneof("value")) for name, value in values.items()})
            self.traces.append((record.trace_id, record.span_id))
        self.taken.set()
        await self.answering.wait()
        return web.Response(body=ExportLogsServiceResponse().SerializeToString())

    async def spans_(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        self.spans += sent.resource_spans[0].scope_spans[0].spans
        return web.Response(status=self.span_status)


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    app = web.Application(client_max_size=64 << 20)
    app.add_routes([web.post("/v1/logs", made.logs), web.post("/v1/traces", made.spans_)])
    runner = web.AppRunner(app)
    await runner.setup()
    await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
    made.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    yield made
    await runner.cleanup()


async def write(path: Path, count: int) -> None:
    journal = await Journal.open(path, "test", SMALL)
    await act(journal, count)
    await journal.close()


async def test_every_row_arrives_as_a_record(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    await write(path, 300)
    assert len(Layout(path).indices()) > 1
    sent = await ship_otlp.ship(path, collector.url, {"X-Key": "a b"})
    assert [record["seq"] for record in collector.records] == list(range(1, sent + 1))
    assert {record["kind"] for record in collector.records} >= {"attempt", "outcome"}
    assert {head["X-Key"] for head in collector.headers} == {"a b"}
    assert {head["Content-Type"] for head in collector.headers} == {"application/x-protobuf"}
    assert all(len(record["hash"]) == 64 for record in collector.records)
    assert not collector.spans
    assert await ship_otlp.ship(path, collector.url, {}) == 0
    await write(path, 5)
    assert await ship_otlp.ship(path, collector.url, {}) == 10


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=503), web.Response(status=302, headers={"Location": "/v1/traces"}), web.Response(status=401),
        web.Response(body=ExportLogsServiceResponse(
            partial_success={"rejected_log_records": 2, "error_message": "too old"}).SerializeToString()),
    ],
    ids=["away", "elsewhere", "not known", "some rejected"],
)  # fmt: skip
async def test_the_cursor_moves_only_once_rows_were_taken(collector: Collector, tmp_path: Path, answer) -> None:
    path = tmp_path / "audit.db"
    await write(path, 20)
    collector.answers = [answer]
    with pytest.raises(ShipFailed) as failed:
        await ship_otlp.ship(path, collector.url, {"X-Key": "secret-of-the-header"})
    assert "secret-of-the-header" not in failed.value.message
    assert not Layout(path).otlp_cursor.exists()
    assert await ship_otlp.ship(path, collector.url, {}) == 40
    assert [record["seq"] for record in collector.records] == list(range(1, 41))
    await write(path, 1)
    with pytest.raises(ShipFailed, match="cannot be reached"):
        await ship_otlp.ship(path, "http://127.0.0.1:9", {})
    assert await ship_otlp.ship(path, collector.url, {}) == 2


async def test_rows_that_a_slow_collector_took_are_sent_again_also_after_a_kill(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.db"
    await write(path, 3)
    collector.answering.clear()
    monkeypatch.setattr(ship_otlp, "_TIMEOUT_S", 0.2)
    with pytest.raises(ShipFailed, match="cannot be reached"):
        await ship_otlp.ship(path, collector.url, {})
    code = "import asyncio, pathlib, sys; from sandbox_console.audit import ship_otlp; "
    code += "asyncio.run(ship_otlp.ship(pathlib.Path(sys.argv[1]), sys.argv[2], {}))"
    collector.taken.clear()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, str(path), collector.url)
    async with asyncio.timeout(60):
        await collector.taken.wait()
    process.kill()
    await process.wait()
    assert not Layout(path).otlp_cursor.exists()
    collector.answering.set()
    monkeypatch.setattr(ship_otlp, "_TIMEOUT_S", 60.0)
    assert await ship_otlp.ship(path, collector.url, {}) == 6
    assert [record["seq"] for record in collector.records] == [*range(1, 7)] * 3  # known by their numbers


@pytest.mark.parametrize("between", [False, True], ids=["together", "the attempt was sent before"])
async def test_a_traced_action_is_a_span_of_its_callers_trace(collector: Collector, tmp_path: Path, between) -> None:
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test", SMALL)
    permit = await journal.begin("exec", "bubblewrap", "bubblewrap/local/a", {"origin": {"traceparent": PARENT}})
    if between:
        await ship_otlp.ship(path, collector.url, {})
    await journal.finish(permit, Outcome.FAILED, 2_000_000, {})
    await journal.close()
    await ship_otlp.ship(path, collector.url, {})
    [span] = collector.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex(), span.name) == (TRACE, SPAN, "exec")
    assert span.end_time_unix_nano - span.start_time_unix_nano == 2_000_000_000
    assert (len(span.span_id), span.status.code) == (8, span.status.STATUS_CODE_ERROR)
    assert (bytes.fromhex(TRACE), bytes.fromhex(SPAN)) in collector.traces


async def test_an_answer_in_parts_is_read_to_its_end(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    await write(path, 3)
    rejected = ExportLogsServiceResponse(partial_success={"rejected_log_records": 2, "error_message": "no room"})

    async def parts() -> AsyncIterator[bytes]:
        data = rejected.SerializeToString()
        yield data[:3]
        await asyncio.sleep(0.2)  # so that it does not leave as one
        yield data[3:]

    collector.answers.append(web.Response(body=parts()))
    with pytest.raises(ShipFailed, match="2 were rejected: no room"):
        await ship_otlp.ship(path, collector.url, {})


async def test_a_collector_that_takes_no_spans_gets_each_record_once(collector: Collector, tmp_path: Path) -> None:
    path = tmp_path / "audit.db"
    journal = await Journal.open(path, "test", SMALL)
    permit = await journal.begin("exec", "bubblewrap", "bubblewrap/local/a", {"origin": {"traceparent": PARENT}})
    await journal.finish(permit, Outcome.OK, 1, {})
    await journal.close()
    collector.span_status = 404
    assert await ship_otlp.ship(path, collector.url, {}) == 2
    assert await ship_otlp.ship(path, collector.url, {}) == 0
    assert [record["seq"] for record in collector.records] == [1, 2]


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("ftp://x", False),
        ("http://", False),
        ("collector:4318", False),
        ("https://a@b:1", False),
        ("http://x.example:1", True),
    ],
)
def test_addresses_that_are_refused(url: str, secret: bool) -> None:
    with pytest.raises(ConfigError, match=r"audit\.ship\.otlp"):
        ship_otlp.checked_url(url, secret=secret)


def test_headers() -> None:
    assert ship_otlp.parse_headers("a=b, c=d%20e=,") == {"a": "b", "c": "d e="}
    with pytest.raises(ConfigError) as error:
        ship_otlp.parse_headers("sk-123456")
    assert "sk-123456" not in str(error.value.message) + str(error.value.hint)


@given(st.text(max_size=80))
def test_no_text_is_taken_for_a_trace(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_callers_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRACEPARENT", raising=False)
    assert caller_trace() == ""
    monkeypatch.setenv("TRACEPARENT", PARENT)
    assert caller_trace() == PARENT
    other = PARENT.replace("4b", "5c")
    with traced(other):
        assert caller_trace() == other
    for bad in (
        PARENT.upper(),
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff{PARENT[2:]}",
        PARENT + "-x",
    ):
        assert parse_traceparent(bad) is None
        monkeypatch.setenv("TRACEPARENT", bad)
        assert caller_trace() == ""


async def test_an_action_is_recorded_with_its_callers_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    ref = SandboxRef("fake", "local", "one")
    backend = FakeBackend(sandboxes=[Sandbox(ref, "one", Status.RUNNING, spec=SandboxSpec("one"))])
    async with open_console(Config(), backends=[backend]) as console:
        with traced(PARENT):
            result = await console.perform(action.Stop(ref)).result()
        entry = await console.audit_entry(result.audit_id)
        assert entry.attempt.body["origin"]["traceparent"] == PARENT
