"""What the command line got wrong once: each as its user met it."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.audit.test_locked import HOLD, Holder
from tests.cli.golden import NOW, Golden, fleet

from sandbox_console.audit import lock, store
from sandbox_console.cli import doctor, lookup, spec_options
from sandbox_console.cli.lifecycle import _signal
from sandbox_console.cli.logs import when
from sandbox_console.errors import UsageError
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox
from sandbox_console.testing.fake_backend import FakeBackend

PIECE = 16 * 1024


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")


def told(golden: Golden, line: str) -> str:
    golden.transcript = ""
    golden(line)
    return golden.transcript


def test_grep_finds_what_stands_over_the_seam_of_two_pieces() -> None:
    at = int(NOW * 1e9)
    line = b"x" * (PIECE - 3) + b"needle" + b"y" * PIECE
    pieces = [LogRecord(at, Stream.STDOUT, part) for part in (line[:PIECE], line[PIECE : 2 * PIECE], line[2 * PIECE :])]
    ended = LogRecord(at, Stream.STDOUT, b"\n")
    between = LogRecord(at, Stream.STDERR, b"of the other stream\n")
    last = LogRecord(at, Stream.STDOUT, b"needle without an end")
    items = [pieces[0], between, *pieces[1:], ended, last]
    golden = Golden([FakeBackend(list(fleet()[0].sandboxes.values()), logs={"aaaaaaaaaaa1": items}, clock=lambda: NOW)])  # type: ignore[attr-defined]
    found = told(golden, "logs web --grep ^x+needle")
    assert line.decode() + "\n[0]" in found
    assert "other stream" not in found
    assert "needle without an end" in told(golden, "logs web --grep 'without an end$'")
    assert told(golden, "logs web --json").count('"partial": true') == 4


@pytest.mark.parametrize(("text", "signal"), [("9", "SIGKILL"), ("15", "SIGTERM"), ("term", "SIGTERM")])
def test_a_signal_may_be_a_number(text: str, signal: str) -> None:
    assert _signal(text) == signal


@pytest.mark.parametrize("text", ["0", "99", "-9", "9.0", "\u0669"])
def test_a_number_that_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        _signal(text)


def test_since_takes_seconds_since_the_epoch() -> None:
    assert when("1795000000", NOW) == 1_795_000_000
    assert when("1795000000.5", NOW) == 1_795_000_000.5
    assert when("90", NOW) == NOW - 90
    assert when("999999999", NOW) == NOW - 999_999_999


def test_a_specs_file_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="is over 1 MiB"):
        spec_options.read_file("/dev/zero")
    with Path("/dev/zero").open("rb") as zeros:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=zeros))
        with pytest.raises(UsageError, match="is over 1 MiB"):
            spec_options.read_file("-")


DEEP = ("a = " + "[" * 100_000, '{"a": ' + "[" * 100_000, "a." * 100_000 + "b = 1", f"[{'a . ' * 100_000}b]")


@pytest.mark.parametrize("text", [*DEEP, '"a\\"#".' * 100_000 + "b = 1"], ids=range(5))
def test_a_specs_file_that_is_nested_deep_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "spec"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"nested too deep|neither TOML nor JSON"):
        spec_options.read_file(str(file))


def test_dots_in_strings_and_comments_are_no_depth(tmp_path: Path) -> None:
    file = tmp_path / "spec"
    dots = "." * 300
    kept = {"a": dots, "b": f'"{dots}', "c": f"{dots}\n{dots}"}
    file.write_text(f'a = "{dots}" # {dots}\nb = \'"{dots}\'\nc = """{dots}\n{dots}"""\n')
    assert spec_options.read_file(str(file)) == kept


@pytest.mark.parametrize("text", ['image = "host"', '{"image": "host"}'])
def test_a_byte_order_mark_is_no_part_of_a_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    file = tmp_path / "spec"
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert spec_options.read_file(str(file)) == {"image": "host"}
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(file.read_bytes())))
    assert spec_options.read_file("-") == {"image": "host"}


@pytest.mark.parametrize(
    ("free", "state", "says"), [(0, "problem", "is full"), (508 * 1024, "warning", "508.0 KiB"), (1 << 30, "ok", "can")]
)
def test_doctor_calls_a_disk_full_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str, says: str
) -> None:
    disk = SimpleNamespace(f_bfree=free // 1024, f_bavail=free // 1024, f_frsize=1024)
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    found = doctor._room(tmp_path / "audit.db")
    assert found.state == state
    assert says in found.text


class Absent(FakeBackend):
    """One that cannot work here, as where an engine is not installed."""

    async def health(self) -> BackendHealth:
        return BackendHealth(self.name, self.host, HealthState.UNAVAILABLE, "it is not installed", "install it")


@pytest.mark.parametrize("verb", ["ls", "stats", "images ls"])
def test_a_backend_that_was_never_there_is_told_of_once(verb: str) -> None:
    absent = Absent(name="engine")
    absent.faults.verbs["list"] = RuntimeError("no engine")
    golden = Golden([*fleet(), absent])
    assert "! warning: engine: unavailable: it is not installed" in told(golden, verb)
    assert "engine" not in told(golden, verb)


@pytest.mark.parametrize("verb", ["ls", "stats", "images ls", "snapshot ls", "egress ls", "egress feed"])
def test_a_backend_that_does_not_answer_is_named_each_time(verb: str) -> None:
    golden = Golden(fleet(dead=True))
    for _ in range(2):
        assert "! warning: gone: unreachable: connection refused" in told(golden, verb)


@pytest.mark.parametrize("verb", ["rename web {}", "fork web {}"])
@pytest.mark.parametrize("name", ["../../x", "a" * 100, "$'\\e[31m'", "''"])
def test_one_check_of_names_for_every_verb_that_gives_one(verb: str, name: str) -> None:
    golden = Golden(fleet())
    found = told(golden, verb.format(name))
    assert found.endswith("[2]\n"), found
    assert "error: name: " in found


def test_several_names_have_each_their_result_and_the_first_failure_is_the_code() -> None:
    golden = Golden(fleet())
    found = told(golden, "stop web nope batch --json")
    results = [json.loads(line) for line in found.splitlines() if line.startswith("{")]
    assert [(one["name"], one["ok"]) for one in results] == [("web", True), ("nope", False), ("batch", True)]
    assert found.endswith("[3]\n")


def test_a_wait_for_the_audit_log_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("TELL_S", 0.1), ("WAIT_S", 0.3)):
        monkeypatch.setattr(lock, name, seconds)
        monkeypatch.setattr(store, name, seconds)
    golden = Golden(fleet())
    told(golden, "pause web --yes")
    holder = Holder(HOLD, tmp_path / "home/state/audit/audit.db")
    said = told(golden, "exec web -- true")
    assert f"the audit log is locked: waiting for process {holder.pid} (" in said
    assert "[125]" in said
    said = told(golden, "kill web --yes")
    assert f"the audit log is locked: process {holder.pid} (" in said
    assert "what is done is recorded in the reserve" in said
    assert "[0]" in said
    holder.release()


def test_the_header_has_the_widths_of_its_rows_though_an_empty_host_answers_first(monkeypatch) -> None:
    monkeypatch.setattr(lookup, "PATIENCE_S", 0.0)

    class Late(FakeBackend):
        async def list(self) -> Sequence[Sandbox]:
            await asyncio.sleep(0.5)
            return await super().list()

    late = Late(list(fleet()[0].sandboxes.values()), clock=lambda: NOW)  # type: ignore[attr-defined]
    said = told(Golden([FakeBackend([], name="quick"), late]), "ls")
    [header] = [line for line in said.splitlines() if line.startswith("NAME")]
    [web] = [line for line in said.splitlines() if line.startswith("web ")]
    assert header.index("STATE") == web.index("running")
    assert header.index("IMAGE") == web.index("python:3.12")
    assert "waiting for fake" in said
