"""Pulse: what is true of the whole fleet, and what it says when there is nothing or nobody answers."""

from __future__ import annotations

from msgspec import structs
from tests.tui.app.scene import NOW, fleet, log_lines, ref, samples, sandbox, screen_text, until

from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.event import Acted
from sandbox_console.model.sandbox import BackendHealth, Exit, HealthState, Stats, Status
from sandbox_console.service import Feed
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.audit.audit_screen import AuditScreen
from sandbox_console.tui.pulse import history as pulse
from sandbox_console.tui.pulse.pulse_screen import PulseScreen
from sandbox_console.tui.state.fleet_state import FleetState

HOSTILE = "[@click=app.quit]x[/]\x1b]52;c;eA==\x07\u202e"


def state(*sandboxes, **more):
    return FleetState(sandboxes={one.ref: one for one in sandboxes}, **more)


def test_sums_are_over_what_was_measured():
    two = state(
        *fleet(), stats={ref("aaaaaaaaaaaa"): Stats(NOW, 12.5, 1 << 20), ref("bbbbbbbbbbbb"): Stats(NOW, None, 2 << 20)}
    )
    assert pulse.total(two) == pulse.Total(12.5, 3 << 20, 2, 3)
    assert pulse.total(state()) == pulse.Total(None, None, 0, 0)
    gone = state(stats={ref("aaaaaaaaaaaa"): Stats(NOW, 12.5)})
    assert pulse.total(gone).measured == 0, "a sample of a sandbox that is gone counts for nothing"


def test_trouble_is_counted_and_named():
    feed = Feed()
    for at in range(3):
        feed.add(ref("aaaaaaaaaaaa"), HOSTILE, EgressRecord(NOW - 90 + at, "x", HOSTILE, 443, allowed=False))
    restarted = [structs.replace(one, restarts=at) for at, one in enumerate(fleet())]
    acted = (Acted(1, "stop", "x", "ok"), Acted(2, "kill", "x", "failed"), Acted(3, "kill", "x", "denied"))
    stopped = sandbox("abababababab", "stopped", Status.EXITED, exit=Exit(143, 15))
    text = pulse.trouble_words(state(*restarted, stopped, acted=acted), feed, NOW).plain
    lines = {line[:15].strip(): line[15:].strip() for line in text.splitlines()}
    assert lines["Restarts"] == "15  most: lost 5"
    assert lines["Out of memory"].startswith("1  last: crashed 1m00s ago")
    assert lines["Ended badly"] == "3  1 lost, 2 with an exit code"
    assert lines["Egress denied"].startswith("3  1 hosts, last: [@click=app.quit]x[/]␛]52")
    assert lines["Actions failed"] == "2  1 ok, 1 failed, 1 denied"
    assert "\x1b" not in text


def test_a_dead_backend_is_told_and_what_it_said_last_is_marked_so():
    health = BackendHealth("fake", "local", HealthState.UNREACHABLE, "connection refused " + HOSTILE)
    dead = state(*fleet(), health={("fake", "local"): health})
    assert "? 6 as last known" in pulse.state_words(dead, 40).plain
    words = pulse.backend_words(dead).plain
    assert "✕ unreachable fake  6 sandboxes" in words
    assert "connection refused [@click" in words
    assert "\x1b" not in words


async def test_u_opens_it_and_what_it_leads_to(run_app):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        app.history.note(app.fleet)
        await pilot.press("u")
        await until(pilot, lambda: isinstance(app.screen, PulseScreen) and "the chain holds" in screen_text(app))
        text = screen_text(app)
        for words in ("3 of 3 running are measured", "● running", "CPU", "200%", "Memory", "979M", "● ok fake"):
            assert words in text
        await pilot.press("h")
        await until(pilot, lambda: isinstance(app.screen, AuditScreen))
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.screen is app.main)


async def test_news_are_drawn(run_app, fake):
    from sandbox_console.model.event import Changed

    async with run_app() as (app, pilot):
        await pilot.press("u")
        await until(pilot, lambda: "6 sandboxes" in screen_text(app))
        await fake.tell(Changed(sandbox("abababababab", "newcomer", Status.FAILED)))
        await until(pilot, lambda: "7 sandboxes" in screen_text(app) and "✕ failed" in screen_text(app))


async def test_denials_come_from_the_records(run_app):
    fake = FakeBackend(fleet(), logs=log_lines(), stats=samples(), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await fake.record(
            ref("aaaaaaaaaaaa"),
            EgressRecord(NOW - 4000, "x", "old.example", 443, allowed=False),
            EgressRecord(NOW - 5, "x", "evil.example", 443, allowed=False),
        )
        await pilot.press("u")
        await until(pilot, lambda: "    1  1 hosts, last: evil" in screen_text(app))
        await until(pilot, lambda: "evil.example from agent 5s ago" in screen_text(app))


async def test_an_empty_fleet_and_an_unwritable_log(run_app):
    async with run_app(FakeBackend(), ready=False) as (app, pilot):
        await until(pilot, lambda: app.fleet.health and not app.fleet.connecting)
        await pilot.press("u")
        await until(pilot, lambda: "There are none" in screen_text(app))
        app.service.audit_log.note_problem("no space left on device")
        await until(pilot, lambda: "it cannot be written: no space left" in screen_text(app))
