"""The page of recordings and the player, on recordings in files: kept small, long, hostile and damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tui.app.scene import NOW, ref, screen_text, until
from textual.widgets import Input

from sandbox_console.service import find_paths
from sandbox_console.tui.recordings.playback import KEYS_MOST, Playback
from sandbox_console.tui.recordings.player_screen import PlayerScreen, following
from sandbox_console.tui.recordings.recording_view import RecordedScreen
from sandbox_console.tui.recordings.recordings_screen import RecordingsScreen
from sandbox_console.tui.widgets.table.table import FleetTable
from sandbox_console.tui.widgets.terminal.ghostty import GhosttyEmulator

AGENT, BUILDER = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[6n\x1bc[@click=app.quit]x[/]\u202eevil"


def write(id_: str, events: list[tuple[float, str, str]], box: str = AGENT, **header: object) -> Path:
    path = find_paths().state / "recordings" / f"{id_}.cast"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    head = {"version": 2, "width": 80, "height": 24, "timestamp": int(NOW) - 3600, "title": "agent",
            "sandbox": str(ref(box)), "actor": "user:tester", "audit_id": 1} | header  # fmt: skip
    path.write_text("".join(json.dumps(one) + "\n" for one in (head, *map(list, events))))
    path.chmod(0o600)
    return path


def minutes(count: int) -> list[tuple[float, str, str]]:
    return [(60.0 * at, "o", f"minute {at}\r\n") for at in range(count + 1)]


async def listed(pilot, app, key="quotation_mark"):
    await until(pilot, lambda: app.main.selected is not None)
    app.main.select(ref(AGENT))
    await pilot.press(key)
    await until(pilot, lambda: isinstance(app.screen, RecordingsScreen))
    await until(pilot, lambda: "reading" not in screen_text(app))


async def playing(pilot, app):
    await until(pilot, lambda: isinstance(app.screen, PlayerScreen) and app.screen.query(RecordedScreen))
    return app.screen


def shown(app) -> str:
    return app.screen.query_one(RecordedScreen).emulator.text()


async def test_on_a_phone_it_is_listed_played_and_searched(run_app):
    """390x844 pixels in the browser are 42 columns, with the touch keys below."""
    write("one", minutes(60))
    async with run_app(size=(42, 36)) as (app, pilot):
        await listed(pilot, app)
        app.clear_notifications()  # one, of what an earlier test left, would cover the page
        await until(pilot, lambda: "1h00m" in screen_text(app))
        await pilot.press("slash")
        app.screen.query_one(Input).value = "minute 9"
        await pilot.press("enter")
        await until(pilot, lambda: "9:00" in screen_text(app))
        await pilot.press("enter")
        await playing(pilot, app)
        await until(pilot, lambda: last_line(app) == "minute 9")
        await until(pilot, lambda: "9:00 / 1:00:00" in screen_text(app))
        await pilot.press("end")
        await until(pilot, lambda: last_line(app) == "minute 60")


@pytest.mark.parametrize("size", [(80, 24), (120, 40)])
async def test_the_recordings_of_a_sandbox_and_of_all_are_listed(run_app, size):
    write("one", minutes(60))
    write("two", [(0.5, "o", "x")], BUILDER, title="builder")
    async with run_app(size=size) as (app, pilot):
        await listed(pilot, app)
        assert "of agent" in screen_text(app)
        assert [row.key for row in app.screen.query_one(FleetTable).rows] == ["one"]
        assert "1h00m" in screen_text(app)
        assert "unended" in screen_text(app)
        await pilot.press("s")
        assert {row.key for row in app.screen.query_one(FleetTable).rows} == {"one", "two"}
        await pilot.press("q")
        await until(pilot, lambda: app.screen is app.main)
        await pilot.press("colon", *"recordings", "enter")
        await until(pilot, lambda: isinstance(app.screen, RecordingsScreen))
        await until(pilot, lambda: "of all sandboxes" in screen_text(app))


async def test_nothing_recorded_says_how_to(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await listed(pilot, app)
        assert "Nothing is recorded yet" in screen_text(app)
        assert "best-effort" in screen_text(app)


async def test_a_search_leads_to_the_second_in_the_player(run_app):
    write("one", minutes(60))
    write("two", [(0.0, "o", "$ "), (7.0, "o", "make mi"), (8.0, "o", "nute 9\r\n"), (9.0, "o", "x")], BUILDER)
    async with run_app(size=(80, 24)) as (app, pilot):
        await listed(pilot, app)
        await pilot.press("s", "slash")
        app.screen.query_one(Input).value = "MINUTE 9"
        await pilot.press("enter")
        await until(pilot, lambda: "2 lines with" in screen_text(app) and "searching" not in screen_text(app))
        assert "9:00" in screen_text(app)
        await pilot.press("G" if "make" in screen_text(app).splitlines()[3] else "g", "enter")
        page = await playing(pilot, app)
        await until(pilot, lambda: "minute 9" in shown(app))
        assert "minute 10" not in shown(app)
        await until(pilot, lambda: "1/1" in screen_text(app))
        assert not page._playing
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, RecordingsScreen))


async def test_it_is_played_paused_sped_up_and_jumped_in(run_app):
    write("one", minutes(60))
    async with run_app(size=(80, 24)) as (app, pilot):
        await listed(pilot, app)
        await pilot.press("enter")
        page = await playing(pilot, app)
        await until(pilot, lambda: "minute 2" in shown(app), limit_s=20)  # idle times are skipped
        await pilot.press("space")
        await until(pilot, lambda: "‖" in screen_text(app))
        for key, minute in (
            ("end", 60),
            ("5", 30),
            ("left_square_bracket", 29),
            ("h", 28),
            ("full_stop", 29),
            ("home", 0),
        ):
            await pilot.press(key)
            await until(pilot, lambda minute=minute: last_line(app) == f"minute {minute}")
        await pilot.press("greater_than_sign", "greater_than_sign")
        await until(pilot, lambda: "4x" in screen_text(app))
        await pilot.press("slash")
        await until(pilot, lambda: app.screen is not page)
        app.screen.query_one(Input).value = "minute 4"
        await pilot.press("enter")
        await until(pilot, lambda: last_line(app) == "minute 4")
        for key, minute in (("n", 40), ("n", 41), ("N", 40), ("N", 4), ("N", 49)):
            await pilot.press(key)
            await until(pilot, lambda minute=minute: last_line(app) == f"minute {minute}")


def last_line(app) -> str:
    return shown(app).rstrip().splitlines()[-1] if app.screen.query(RecordedScreen) else ""


async def test_what_is_recorded_never_acts_on_the_terminal(run_app):
    write("one", [(0.0, "o", HOSTILE), (1e300, "o", "later"), (float("nan"), "o", "never")], title=HOSTILE,
          actor=HOSTILE, command=HOSTILE, width=10**9, height=-3)  # fmt: skip
    write("two", [(0.0, "r", "99999x99999"), (0.0, "o", "big"), (0.0, "r", "0x0")], timestamp=1e300, audit_id=1e300)
    write("three", [])
    (find_paths().state / "recordings" / "bad.cast").write_text("no recording")
    async with run_app(size=(80, 24)) as (app, pilot):
        await listed(pilot, app)
        await pilot.press("s")
        await until(pilot, lambda: "un…" in screen_text(app) or "unreadable" in screen_text(app))
        for id_, words in (("one", "evil"), ("two", "big"), ("three", "")):
            app.screen.query_one(FleetTable).move_to(id_)
            if id_ == "two":  # its times are no times
                continue
            await pilot.press("enter")
            await playing(pilot, app)
            await until(pilot, lambda words=words: words in shown(app))
            assert "\x1b" not in screen_text(app)
            assert "\u202e" not in screen_text(app)
            await pilot.press("q")
            await until(pilot, lambda: isinstance(app.screen, RecordingsScreen))


async def test_a_larger_terminal_is_scrolled_to_its_cursor(run_app):
    write("one", [(0.0, "o", "top\x1b[60;150Hcorner")], width=160, height=60)
    async with run_app(size=(80, 24)) as (app, pilot):
        await listed(pilot, app)
        await pilot.press("enter")
        await playing(pilot, app)
        await until(pilot, lambda: "corner" in screen_text(app))
        assert "top" not in screen_text(app)


async def test_text_is_copied_from_a_recording(run_app):
    write("one", [(0.0, "o", "first\r\nsecond\r\n")])
    async with run_app(size=(80, 24)) as (app, pilot):
        await listed(pilot, app)
        await pilot.press("enter")
        await playing(pilot, app)
        await until(pilot, lambda: "second" in shown(app))
        await pilot.press("left_curly_bracket", "g", "V", "y")
        await until(pilot, lambda: app.clipboard.strip() == "first")


async def test_keyframes_give_the_same_screen_as_playing(tmp_path):
    events = [(at / 10, "o", f"\x1b[3{at % 8}mline {at}\x1b[0m {'x' * 90}\r\n") for at in range(4000)]
    cut = [(at, "o", part) for at, _, text in events for part in (text[:2], text[2:])]  # inside of sequences
    path = tmp_path / "one.cast"
    path.write_text("".join(json.dumps(one) + "\n" for one in ({"version": 2, "width": 80, "height": 24}, *cut)))
    path.chmod(0o600)
    play = Playback(path, lambda cols, rows: GhosttyEmulator(cols, rows, 0))
    play._every = 4096
    await play.open()
    await play.index()
    assert play.indexed
    assert 10 < len(play._keyframes) <= KEYS_MOST
    for at in (399.0, 1.0, 200.05, 399.9, 0.0, 250.0, 249.9):
        await play.seek(at)
        plain = GhosttyEmulator(80, 24, 0)
        plain.feed("".join(text for when, _, text in cut if when <= at).encode())
        for one in (plain, play.emulator):
            one.refresh()
        assert [plain.line(y) for y in range(24)] == [play.emulator.line(y) for y in range(24)]
        plain.close()
    play.close()


def test_matches_are_gone_through_around_the_ends():
    assert [following([1.0, 2.0, 3.0], now, 1) for now in (0.0, 1.0, 3.0)] == [1.0, 2.0, 1.0]
    assert [following([1.0, 2.0, 3.0], now, -1) for now in (0.5, 1.0, 3.0)] == [3.0, 3.0, 2.0]
