"""The pages of an incident: why, timeline and alerts, also with hostile text, floods and clocks that jump."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import NOW, NS, fleet, ref, samples, sandbox, screen_text, until
from tests.tui.app.test_recordings import playing, shown, write
from textual.widgets import Input

from sandbox_console.model.guest import GuestEvent
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Exit, Status
from sandbox_console.model.timeline import ClockDifference, Missing, Moment, Source, Timeline
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.incident import timeline_rows, timeline_screen
from sandbox_console.tui.incident.timeline_rows import Window
from sandbox_console.tui.incident.timeline_screen import TimelineScreen
from sandbox_console.tui.incident.why_screen import WhyScreen
from sandbox_console.tui.widgets.table.table import FleetTable

HOSTILE = "[@click=app.quit]x[/]\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202eevil\u200b"
CRASHED = "cccccccccccc"


def told(*moments: Moment, **more) -> Timeline:
    return Timeline(moments, **more)


def moment(at: float, text: str = "", source: Source = Source.LOG, what: str = "error", **more) -> Moment:
    return Moment(at, ref(CRASHED), "crashed", source, what, text, **more)


def hostile_fake():
    lines = [LogRecord(int((NOW - 61) * NS), Stream.STDERR, f"ERROR {HOSTILE}\n".encode())]
    one = sandbox(CRASHED, HOSTILE, Status.EXITED, exit=Exit(3, reason=HOSTILE), finished_at=NOW - 60)
    happened = {CRASHED: [GuestEvent(NOW - 60, "die", HOSTILE, {"exitCode": HOSTILE})]}
    return FakeBackend([one], logs={CRASHED: lines}, within=Within(guest_events=happened), clock=lambda: NOW)


async def page(app, pilot, kind):
    await until(pilot, lambda: isinstance(app.screen, kind))
    return app.screen


async def test_from_the_start_the_card_is_two_keys_away_when_there_is_trouble(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press("z", "full_stop")
        await page(app, pilot, WhyScreen)
        await until(pilot, lambda: "out of memory: the kernel killed it at its limit" in screen_text(app))
        assert "signal SIGKILL" in screen_text(app)
        await pilot.press("semicolon")
        await page(app, pilot, TimelineScreen)
        await pilot.press("q", "q")
        await until(pilot, lambda: app.screen is app.main)


async def test_a_timeline_that_is_read_while_its_page_closes_is_dropped(run_app):
    async with run_app() as (app, pilot):
        await pilot.press("semicolon")
        screen = await page(app, pilot, TimelineScreen)
        await until(pilot, lambda: screen._timeline is not None)
        await screen.query(FleetTable).remove()  # a page that closes removes what is in it before it ends its readers
        screen._timeline = None
        await screen._read()
        assert screen._timeline is not None


async def test_a_running_one_has_not_ended_and_the_card_follows_it(run_app, fake):
    async with run_app() as (app, pilot):
        app.main.select(ref("aaaaaaaaaaaa"))
        await pilot.press("full_stop")
        await page(app, pilot, WhyScreen)
        await until(pilot, lambda: "it is running: it has not ended" in screen_text(app))
        await pilot.press("Q")
        await until(pilot, lambda: "Quarantine" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: app.fleet.sandboxes[ref("aaaaaaaaaaaa")].quarantine)
        await until(pilot, lambda: isinstance(app.screen, WhyScreen) and "paused" in screen_text(app))


async def test_hostile_text_is_only_text(run_app):
    async with run_app(hostile_fake()) as (app, pilot):
        app.main.fleet.toggle_faults()
        await pilot.press("full_stop")
        await page(app, pilot, WhyScreen)
        await until(pilot, lambda: "its command failed: exit 3" in screen_text(app))
        await pilot.press("semicolon")
        await page(app, pilot, TimelineScreen)
        await until(pilot, lambda: "[@click=app.quit]x[/]" in screen_text(app))
        shown = screen_text(app)
        assert not set("\x1b\x07\u202e\u200b") & set(shown)
        await pilot.press("g", "enter")
        await pilot.pause()
        assert not set("\x1b\x07\u202e\u200b") & set(screen_text(app))
        await pilot.click(offset=(30, 5))
        assert app.is_running


async def test_a_log_line_of_the_timeline_leads_to_the_log(run_app):
    lines = [LogRecord(int((NOW - 600 + at) * NS), Stream.STDERR, b"ERROR %d\n" % at) for at in range(300)]
    fake = FakeBackend(fleet(), logs={CRASHED: lines}, stats=samples(), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        app.main.select(ref(CRASHED))
        await pilot.press("semicolon")
        await page(app, pilot, TimelineScreen)
        await until(pilot, lambda: "ERROR 299" in screen_text(app))
        await pilot.press("slash", *"ERROR 123", "enter")
        await until(pilot, lambda: app.screen.query_one(FleetTable).rows and "1 of" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        view = app.main.detail.logs.view
        await until(pilot, lambda: not view.follow and "ERROR 123" in screen_text(app))
        shown = [line for line in screen_text(app).splitlines() if "ERROR" in line]
        assert "ERROR 123" in shown[0]


async def test_ten_thousand_moments_and_a_clock_that_jumps(run_app, monkeypatch):
    odd = [moment(at, f"odd {at}") for at in (-1e18, -62135596801.0, 0.0, 1e18)]
    many = [moment(NOW + at / 100, f"line {at}") for at in range(10_000)]
    found = told(*odd[:3], *many, odd[3])

    async def flood(*_, **__):
        return found

    monkeypatch.setattr(timeline_screen, "timeline", flood)
    async with run_app() as (app, pilot):
        app.main.select(ref(CRASHED))
        await pilot.press("semicolon")
        await page(app, pilot, TimelineScreen)
        await until(pilot, lambda: "10004 of 10004" in screen_text(app))
        for _ in range(5):
            await pilot.press("plus")
        await pilot.press("g", "G", "minus", "minus", "x", "pagedown")
        await pilot.press("slash", *"line 99", "enter")
        await until(pilot, lambda: "filter: line 99" in screen_text(app))
        assert app.is_running


async def test_what_is_missing_and_clocks_that_differ_are_said(run_app, monkeypatch):
    gaps = tuple(Missing(ref(CRASHED), f"box{at}", Source.EGRESS, f"no records {HOSTILE}") for at in range(9))
    found = told(moment(NOW, "oh"), missing=gaps, clocks=(ClockDifference("fake", "local", -3.25),))

    async def made(*_, **__):
        return found

    monkeypatch.setattr(timeline_screen, "timeline", made)
    async with run_app(size=(80, 24)) as (app, pilot):
        app.main.select(ref(CRASHED))
        await pilot.press("semicolon")
        await page(app, pilot, TimelineScreen)
        await until(pilot, lambda: "the clock of fake/local is 3.2 s behind this machine's" in screen_text(app))
        assert "more sources are incomplete" not in screen_text(app).splitlines()[-1]
        assert "✕ box0: egress: no records" in screen_text(app)
        assert "≈" in next(line for line in screen_text(app).splitlines() if " oh" in line)


async def test_an_audit_row_is_opened_and_escape_goes_back_one_by_one(run_app):
    async with run_app() as (app, pilot):
        app.main.select(ref("aaaaaaaaaaaa"))
        await pilot.press("p", "y")
        await until(pilot, lambda: app.fleet.sandboxes[ref("aaaaaaaaaaaa")].status is Status.PAUSED)
        await pilot.press("semicolon")
        await page(app, pilot, TimelineScreen)
        await pilot.press("slash", *"source:audit", "enter")
        await until(pilot, lambda: "by user:tester: ok" in screen_text(app))
        await pilot.press("enter")
        await page(app, pilot, TextScreen)
        assert "Audit row" in screen_text(app)
        await pilot.press("escape", "escape")
        assert app.screen.query_one("#timeline-filter", Input).value == ""
        await pilot.press("plus", "plus", "escape")
        assert isinstance(app.screen, TimelineScreen)
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)


async def test_a_moment_leads_to_the_recordings_second(run_app, monkeypatch):
    async def moments(*_: object, **__: object) -> Timeline:
        return told(moment(NOW - 65, "a denial", Source.EGRESS, "denied"))

    monkeypatch.setattr(timeline_screen, "timeline", moments)
    lines = [(float(at), "o", f"line at {at}\r\n") for at in range(0, 90, 10)]
    write("rec1", lines, CRASHED, timestamp=int(NOW) - 100)
    async with run_app() as (app, pilot):
        app.main.select(ref(CRASHED))
        await pilot.press("semicolon")
        await page(app, pilot, TimelineScreen)
        await until(pilot, lambda: "a denial" in screen_text(app))
        await pilot.press("p")
        await playing(pilot, app)
        await until(pilot, lambda: "line at 30" in shown(app))
        await pilot.pause(0.3)
        assert "line at 40" not in shown(app), "it stands still"
        assert "‖ 0:35 / 1:20" in screen_text(app)
        await pilot.press("space")
        await until(pilot, lambda: "line at 40" in shown(app))
        await pilot.press("escape")
        await page(app, pilot, TimelineScreen)


async def test_a_moment_without_a_recording_says_so(run_app):
    async with run_app() as (app, pilot):
        app.main.select(ref(CRASHED))
        await pilot.press("semicolon")
        await page(app, pilot, TimelineScreen)
        await until(pilot, lambda: app.screen.query_one(FleetTable).rows)
        await pilot.press("p")
        await until(pilot, lambda: "No recorded shell was open at this time." in screen_text(app))
        assert isinstance(app.screen, TimelineScreen)


@pytest.mark.parametrize(
    ("one", "bad"),
    [
        (moment(1, "panic"), True),
        (moment(1, "x:443", Source.EGRESS, "allowed"), False),
        (moment(1, "x:443", Source.EGRESS, "denied"), True),
        (moment(1, "by a: ok", Source.AUDIT, "exec"), False),
        (moment(1, "by a: failed: no", Source.AUDIT, "exec"), True),
        (moment(1, "exitCode=0", Source.BACKEND, "die"), False),
        (moment(1, "exitCode=137", Source.BACKEND, "die"), True),
        (moment(1, "", Source.BACKEND, "oom"), True),
        (moment(1, "exit 0", Source.STATE, "ended"), False),
        (moment(1, "exit 3", Source.STATE, "ended"), True),
        (moment(1, "cpu 1%", Source.SAMPLE, "use"), False),
    ],
)
def test_trouble(one, bad):
    assert timeline_rows.is_bad(one) is bad


def test_zoom_stays_within_the_whole_and_ends_at_a_second():
    every = Window(0, 1000)
    near = every.zoomed(1, 990, every)
    assert (near.begin, near.end) == (500, 1000)
    for _ in range(40):
        near = near.zoomed(1, 995, every)
    assert near.seconds == timeline_rows.NARROWEST_S
    assert near.begin <= 995 <= near.end
    for _ in range(40):
        near = near.zoomed(-1, 995, every)
    assert near == every
    assert Window(5, 5).zoomed(1, 5, Window(5, 5)) == Window(5, 5)


def test_quiet_times_have_a_row_and_repetitions_count_to_their_last():
    found = list(timeline_rows.rows(
        [moment(0), moment(10, "again", count=5, last_at=100.0), moment(130, "after"), moment(300, "late")],
        offsets=lambda _: 0.0,
    ))  # fmt: skip
    assert [row.key for row in found] == [0, 1, 2, -3, 3]
    assert "nothing for 2m50s" in str(found[3].cells[-1])
    assert "×5 until" in str(found[1].cells[-1])


def test_the_filter_takes_fields_and_plain_words():
    some = [moment(1, "a Panic"), moment(2, "x", Source.EGRESS, "denied"), moment(3, "pan", Source.AUDIT, "exec")]
    assert timeline_rows.chosen(some, "pan", trouble=False) == [some[0], some[2]]
    assert timeline_rows.chosen(some, "pan", trouble=True) == [some[0]]
    assert timeline_rows.chosen(some, "source:egress", trouble=False) == [some[1]]
    assert timeline_rows.chosen(some, "what:exec pan", trouble=False) == [some[2]]
    assert timeline_rows.chosen(some, "http://x", trouble=False) == []


async def test_loudest_sorts_by_what_is_logged(run_app):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        await pilot.press("number_sign")
        await until(pilot, lambda: app.main.table.sort_column == "log")
        assert app.main.table.sort_reverse
        assert "log" in {column.key for column in app.main.table.columns}
