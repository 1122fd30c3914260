"""A timeline of real sandboxes: every source in the order of time, hostile text as data, nothing unbounded."""

from __future__ import annotations

import json

import pytest
from tests.incident.conftest import Make, until_ended

from sandbox_console.model import action
from sandbox_console.model.sandbox import Stats
from sandbox_console.model.timeline import Source
from sandbox_console.service import Consent, Console
from sandbox_console.service.incident import timeline as module
from sandbox_console.service.incident.timeline import Span, timeline


async def test_every_source_in_order(console: Console, make: Make) -> None:
    ref = await make("sh", "-c", "echo fine; sleep 0.2; echo 'ERROR it broke' >&2; sleep 0.5; exit 3")
    told = await timeline(console, [await until_ended(console, ref)])
    assert [one.at for one in told.moments] == sorted(one.at for one in told.moments)
    assert {one.source for one in told.moments} == {Source.AUDIT, Source.BACKEND, Source.LOG}
    [line] = [one for one in told.moments if one.source is Source.LOG]
    assert (line.what, line.text) == ("error", "ERROR it broke")
    [made] = [one for one in told.moments if one.source is Source.AUDIT]
    assert (made.what, made.seq is not None) == ("create", True)
    assert told.missing == ()


async def test_samples_are_among_the_others(console: Console, make: Make) -> None:
    sandbox = await until_ended(console, await make("sh", "-c", "sleep 0.5; exit 3"))
    assert sandbox.started_at
    taken = [Stats(sandbox.started_at + 0.1, cpu_percent=80.0, log_rate=2048.0), Stats(sandbox.started_at + 900)]
    span = Span(until=sandbox.started_at + 800)
    told = await timeline(console, [sandbox], span, {sandbox.ref: taken})
    assert [one.at for one in told.moments] == sorted(one.at for one in told.moments)
    [sample] = [one for one in told.moments if one.source is Source.SAMPLE]
    assert sample.text == "cpu 80%  log 2.0 KiB/s"
    assert told.moments.index(sample) not in (0, len(told.moments) - 1)


async def test_a_span_holds_what_is_in_it(console: Console, make: Make) -> None:
    sandbox = await until_ended(console, await make("sh", "-c", "sleep 0.3; exit 3"))
    whole = (await timeline(console, [sandbox])).moments
    cut = whole[-1].at
    assert (await timeline(console, [sandbox], Span(until=cut))).moments == whole[:-1]
    assert (await timeline(console, [sandbox], Span(since=cut))).moments == whole[-1:]


async def test_a_flood_is_counted_and_cut_and_said(
    console: Console, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EACH_MOST", 50)
    same = "i=0; while [ $i -lt 30 ]; do echo ERROR over and over; i=$((i+1)); done"
    other = "i=0; while [ $i -lt 60 ]; do echo ERROR number $i; i=$((i+1)); done"
    first = await until_ended(console, await make("sh", "-c", same))
    second = await until_ended(console, await make("sh", "-c", other))
    told = await timeline(console, [first])
    [line] = [one for one in told.moments if one.source is Source.LOG]
    assert (line.count, line.last_at is not None) == (30, True)
    told = await timeline(console, [second])
    lines = [one.text for one in told.moments if one.source is Source.LOG]
    assert lines == [f"ERROR number {at}" for at in range(10, 60)]
    [gap] = told.missing
    assert (gap.source, gap.why) == (Source.LOG, "only the last 50 of 60 are shown")


async def test_two_sandboxes_are_merged(console: Console, make: Make) -> None:
    one = await until_ended(console, await make("sh", "-c", "echo ERROR a"))
    two = await until_ended(console, await make("sh", "-c", "echo ERROR b"))
    await console.perform(action.Start(one.ref), consent=Consent(yes=True)).result()
    told = await timeline(console, [await until_ended(console, one.ref), two])
    logs = [moment.text for moment in told.moments if moment.source is Source.LOG]
    assert logs == ["ERROR a", "ERROR b", "ERROR a"]
    assert {moment.name for moment in told.moments} == {one.name, two.name}


def test_by_the_command_line(backend: str, home, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    from tests.library.conftest import IMAGES

    from sandbox_console.__main__ import main

    def run(*words: str) -> tuple[int, bytes]:
        code = main(["--backend", backend, *words])
        return code, capfdbinary.readouterr().out

    create = ("create", "web", "--image", IMAGES[backend], "--", "sh", "-c", r"printf 'ERROR \033[2Jx\n'; exit 3")
    assert run(*create)[0] == 0
    try:
        assert run("wait", "web")[0] == 0
        code, text = run("timeline", "web")
        assert code == 0
        assert b"\x1b" not in text
        found = [json.loads(line) for line in run("--json", "timeline", "web")[1].splitlines()]
        assert {one["source"] for one in found} == {"audit", "backend", "log"}
        code, text = run("why", "web")
        assert (code, b"its command failed: exit 3" in text) == (0, True)
        [data] = [json.loads(line) for line in run("--json", "why", "web")[1].splitlines()]
        assert (data["why"], data["sure"], data["exit"]["code"]) == ("its command failed: exit 3", True, 3)
    finally:
        run("--yes", "rm", "--force", "web")
