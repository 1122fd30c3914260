"""The log view: following, pausing, searching, filtering, folding, saving, hostile lines."""

from __future__ import annotations

import re
import stat
import time

import pytest
from textual.app import App
from textual.widgets import Input

from sandbox_console.errors import UsageError
from sandbox_console.logs.store import CHUNK_BYTES
from sandbox_console.model.log import LogGap, LogRecord, Stream
from sandbox_console.tui.widgets.log.log_pane import LogPane
from sandbox_console.tui.widgets.log.log_view import LogView


def out(text, at_ns=0):
    return LogRecord(at_ns, Stream.STDOUT, text.encode() if isinstance(text, str) else text)


def err(text, at_ns=0):
    return LogRecord(at_ns, Stream.STDERR, text.encode())


def numbered(start, end):
    return [out(f"line {at}\n", at) for at in range(start, end)]


class Logs(App):
    def compose(self):
        yield LogPane()


async def test_next_without_a_search_says_so_and_which_key_searches():
    app = Logs()
    async with app.run_test(size=(60, 12), notifications=True) as pilot:
        app.query_one(LogView).focus()
        await pilot.press("n")
        await pilot.pause()
        assert [one.message for one in app._notifications] == ["Nothing is being searched for. / searches."]


@pytest.fixture
async def logs():
    app = Logs()
    async with app.run_test(size=(60, 12)) as pilot:
        view = app.query_one(LogView)
        view.focus()
        await pilot.pause()
        yield pilot, view


def lines(view):
    return [view.render_line(y).text.rstrip().replace("▸", " ") for y in range(view.size.height)]


async def until(pilot, view, check):
    deadline = time.monotonic() + 30
    while not check(lines(view)):
        assert time.monotonic() < deadline, "\n".join(lines(view))
        await pilot.pause(0.01)
    return lines(view)


def last_is(text):
    return lambda shown: shown[-2].strip() == text


async def test_it_follows_until_scrolled_up_and_g_resumes(logs):
    pilot, view = logs
    view.append(numbered(0, 100))
    shown = await until(pilot, view, last_is("line 99"))
    assert shown[-1].startswith("FOLLOWING [100/100]")
    await pilot.press("up", "up")
    shown = await until(pilot, view, last_is("line 97"))
    assert shown[-1].startswith("PAUSED [98/100]")
    view.append(numbered(100, 200))
    shown = await until(pilot, view, lambda shown: "/200]" in shown[-1])
    assert shown[-2].strip() == "line 97", "held still while more came"
    await pilot.press("G")
    shown = await until(pilot, view, last_is("line 199"))
    assert shown[-1].startswith("FOLLOWING")
    await pilot.press("pageup")
    assert (await until(pilot, view, last_is("line 189")))[-1].startswith("PAUSED")
    await pilot.press("g")
    assert (await until(pilot, view, lambda shown: shown[0].strip() == "line 0"))[-1].startswith("PAUSED [11/200]")
    await pilot.press("s")
    await until(pilot, view, last_is("line 199"))


async def test_the_wheel_pauses_too(logs):
    pilot, view = logs
    view.append(numbered(0, 100))
    await until(pilot, view, last_is("line 99"))
    view.scroll_relative(y=-3, animate=False, force=True, immediate=True)
    assert (await until(pilot, view, last_is("line 96")))[-1].startswith("PAUSED")


async def test_another_height_does_not_pause(logs):
    pilot, view = logs
    view.append(numbered(0, 100))
    await until(pilot, view, last_is("line 99"))
    for height in (30, 8, 20):
        await pilot.resize_terminal(60, height)
        await until(pilot, view, lambda shown: len(shown) > 2 and shown[-2].strip() == "line 99")
        assert view.follow
    view.append(numbered(100, 120))
    assert (await until(pilot, view, last_is("line 119")))[-1].startswith("FOLLOWING")


async def test_held_still_while_old_lines_are_dropped():
    class Small(App):
        def compose(self):
            yield LogView(cap_bytes=2 * CHUNK_BYTES)

    app = Small()
    async with app.run_test(size=(60, 12)) as pilot:
        view = app.query_one(LogView)
        body = "x" * 990
        view.append([out(f"{at:06} {body}\n") for at in range(2000)])
        await until(pilot, view, lambda shown: shown[-2].strip().startswith("001999"))
        view._pause()
        view._move(1500)
        view._redraw()
        top = lines(view)[0]
        view.append([out(f"{at:06} {body}\n") for at in range(2000, 4600)])
        await until(pilot, view, lambda shown: "older dropped" in shown[-1])
        assert view.store.first > 0
        assert lines(view)[0] == top


async def test_streams_gaps_and_unfinished_lines_are_told_apart(logs):
    pilot, view = logs
    view.append([out("fine\n"), err("bad\n"), LogGap(0, "slow viewer", 12), out("login: ")])
    shown = await until(pilot, view, lambda shown: "  login:" in shown)
    assert shown[:4] == ["  fine", "E bad", "~ [12 lines lost: slow viewer]", "  login:"]
    view.append([out("root\n")])
    await until(pilot, view, lambda shown: shown[3] == "  login: root")


async def test_colours_stay_and_nothing_else_acts(logs):
    pilot, view = logs
    view.append([out("\x1b[31mred\x1b[0m \x1b]52;c;cHdu\x07 \x9b21t \u202eevil [@click=app.quit]x[/] \x1b[8mhidden\n")])
    await until(pilot, view, lambda shown: "red" in shown[0])
    strip = view.render_line(0)
    assert strip.text.rstrip() == "  red ␛]52;c;cHdu␇ <U+009B>21t <U+202E>evil [@click=app.quit]x"[:60].rstrip()
    red = next(segment for segment in strip if segment.text == "red")
    assert red.style.color.number == 1
    assert not any(segment.style.conceal or segment.style.meta.get("@click") for segment in strip)


async def test_search_goes_from_match_to_match(logs):
    pilot, view = logs
    view.append(numbered(0, 1000))
    await until(pilot, view, last_is("line 999"))
    await pilot.press("slash")
    await pilot.press(*"50$", "enter")
    shown = await until(pilot, view, lambda shown: "  line 950" in shown)
    assert "match 10/10" in shown[-1]
    await pilot.press("N")
    shown = await until(pilot, view, lambda shown: "  line 850" in shown)
    assert "match 9/10" in shown[-1]
    await pilot.press("n", "n")
    shown = await until(pilot, view, lambda shown: "  line 50" in shown)
    assert "match 1/10" in shown[-1], "past the end it begins at the top"
    strip = next(strip for y in range(9) if "line 50" in (strip := view.render_line(y)).text)
    assert [segment.text for segment in strip if segment.style.reverse] == [" ▸", "50"]


async def test_a_filter_shows_only_what_matches_also_of_what_comes(logs):
    pilot, view = logs
    view.append(numbered(0, 100))
    view.set_filter("7$")
    shown = await until(pilot, view, lambda shown: "  line 97" in shown and shown[0] == "  line 7")
    assert "[10/10]  filtered from 100" in shown[-1]
    view.append(numbered(100, 120))
    await until(pilot, view, last_is("line 117"))
    view.append([out("x" * 4000 + f" {at}7\n") for at in range(20_000)])
    await until(pilot, view, lambda shown: view.store.dropped and shown[-1].startswith("FOLLOWING"))
    await until(pilot, view, lambda shown: len(view.lines.filter.lines) == len(view.store))
    view.append(numbered(0, 120))
    view.set_filter(None)
    await until(pilot, view, last_is("line 119"))
    with pytest.raises(UsageError):
        view.set_filter("(")


async def test_what_has_no_end_yet_is_searched_and_filtered_too(logs):
    pilot, view = logs
    view.append([*numbered(0, 50), out("fatal: no"), err("Password: ")])
    view.search("fatal")
    await until(pilot, view, lambda shown: "match 1/1" in shown[-1])
    assert view.look.selected == 50
    await pilot.press("n", "N")
    await until(pilot, view, lambda shown: "match 1/1" in shown[-1])
    await pilot.press("G")
    view.set_filter("fatal|word|line 7")
    shown = await until(pilot, view, lambda shown: shown[:3] == ["  line 7", "  fatal: no", "E Password:"])
    assert "[3/3]  filtered from 52" in shown[-1]
    assert b"".join(view.lines.raw()()) == b"line 7\nfatal: noPassword: "
    view.append([out("thing\n"), *numbered(70, 72)])
    shown = await until(pilot, view, lambda shown: "  line 71" in shown)
    assert shown[1:5] == ["  fatal: nothing", "  line 70", "  line 71", "E Password:"]
    view.set_filter("!line|word")
    await until(pilot, view, lambda shown: shown[0] == "  fatal: nothing" and "[1/1]" in shown[-1])


async def test_a_wrong_pattern_keeps_the_input_open(logs):
    pilot, view = logs
    await pilot.press("ampersand")
    await pilot.press(*"((", "enter")
    line = pilot.app.query_one(Input)
    assert line.has_focus
    assert "not a regular expression" in str(line.border_subtitle)
    await pilot.press("escape")
    assert view.has_focus


async def test_timestamps_tell_the_day_where_it_is_not_today(logs):
    pilot, view = logs
    now = time.time_ns()
    view.append([out("x\n", now)])
    await pilot.press("t")
    shown = await until(pilot, view, lambda shown: shown[0].endswith("x"))
    if time.localtime(now / 1e9).tm_yday == time.localtime().tm_yday:  # it is not midnight
        assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}   x", shown[0])
    view.clear()
    view.append([out("x\n", 1_700_000_000_123_000_000), out("y\n", now)])
    shown = await until(pilot, view, lambda shown: shown[1].endswith("y"))
    assert re.fullmatch(r"11-1[45] \d\d:\d\d:20\.123   x", shown[0])
    assert len(shown[0]) == len(shown[1]), "in one column"


async def test_folding_shows_every_character(logs):
    pilot, view = logs
    text = "".join(chr(ord("a") + at % 26) for at in range(200))
    view.append([*numbered(0, 50), out(text + "\n"), out("last\n")])
    await until(pilot, view, last_is("last"))
    await pilot.press("w")
    shown = await until(pilot, view, lambda shown: any(len(line) > 40 for line in shown[:-1]) and shown[-2] == "  last")
    start = next(at for at, line in enumerate(shown) if line.startswith("  abc"))
    assert "".join(line[2:] for line in shown[start:-2]) == text
    await pilot.press("up")
    shown = await until(pilot, view, lambda shown: shown[-1].startswith("PAUSED"))
    await pilot.press(*["up"] * 60)
    await until(pilot, view, lambda shown: shown[0] == "  line 0")
    await pilot.press(*["down"] * 60)
    await until(pilot, view, lambda shown: shown[-2] == "  last")


def body(shown):
    return [line[2:] for line in shown[:-1]]


async def test_every_row_of_a_line_taller_than_the_view_is_reached(logs):
    pilot, view = logs
    text = "".join(f"<{at:04}>" for at in range(400))
    view.append([*numbered(0, 20), out(text + "\n"), *numbered(20, 40)])
    await until(pilot, view, last_is("line 39"))
    await pilot.press("w", "g")
    await until(pilot, view, lambda shown: shown[0] == "  line 0")
    seen = body(lines(view))
    for _ in range(100):
        await pilot.press("pagedown")
        page = body(lines(view))
        if page[0] not in seen:
            break
        rest = page[len(seen) - seen.index(page[0]) :]
        seen += rest
        if not rest:
            break
    assert "".join(line for line in seen if not line.startswith("line")) == text, "nothing is passed over"
    assert seen[-1] == "line 39"
    await pilot.press(*["up"] * 40)
    await until(pilot, view, lambda shown: shown[-1].startswith("PAUSED") and "<" in shown[0])
    top = lines(view)[0]
    view.append(numbered(40, 50))
    await until(pilot, view, lambda shown: "/51]" in shown[-1])
    assert lines(view)[0] == top, "held still within the line"
    for words in ("<0007>", "<0200>", "<0399>"):
        view.search(words)
        await until(pilot, view, lambda shown, words=words: "match 1/1" in shown[-1] and words in "".join(body(shown)))


async def test_a_match_among_tall_lines_is_brought_into_view(logs):
    pilot, view = logs
    view.look.wrap = True
    view.append([out(f"needle {at} " + "x" * 300 + "\n") for at in range(30)])
    await until(pilot, view, lambda shown: any("needle 29" in line for line in shown))
    view.search("needle 2[0-9]")
    await until(pilot, view, lambda shown: "match 10/10" in shown[-1])
    for number in (29, 28, 27, 26, 25, 24):
        await until(pilot, view, lambda shown, number=number: any(f"needle {number} " in line for line in shown))
        await pilot.press("N")


async def test_json_that_is_spread_is_in_view_from_its_first_row_to_its_last(logs):
    pilot, view = logs
    record = "{" + ", ".join(f'"key{at}": {at}' for at in range(30)) + "}"
    view.append([*numbered(0, 50), out('{"a": 1, "b": 2}\n')])
    await until(pilot, view, lambda shown: "a=1" in shown[-2])
    await pilot.press("enter")
    await until(
        pilot, view, lambda shown: [line[2:].strip() for line in shown[-5:-1]] == ["{", '"a": 1,', '"b": 2', "}"]
    )
    await pilot.press("enter", "G")
    view.append([out(record + "\n")])
    await until(pilot, view, lambda shown: "key0=0" in shown[-2])
    await pilot.press("shift+down", "enter")
    await until(pilot, view, lambda shown: shown[0].endswith("{") and shown[1].endswith('"key0": 0,'))
    await pilot.press("end", "up")
    await until(pilot, view, lambda shown: shown[-2].endswith('"key29": 29'))


async def test_sideways(logs):
    pilot, view = logs
    view.append([out("0123456789" * 20 + "\n")])
    await until(pilot, view, lambda shown: "0123" in shown[0])
    await pilot.press("right")
    assert lines(view)[0].startswith("  89012345")
    await pilot.press("left", "left")
    assert lines(view)[0].startswith("  0123")


async def test_jumps_in_time(logs):
    pilot, view = logs
    now = time.time_ns()
    view.append([out(f"{age} s ago\n", now - age * 10**9) for age in range(4000, 0, -50)])
    await until(pilot, view, last_is("50 s ago"))
    for times, top in ((3, "  900 s ago"), (1, "  1800 s ago"), (1, "  3600 s ago")):
        await pilot.press(*"T" * times)
        await until(pilot, view, lambda shown, top=top: shown[0] in {top, f"  {int(top.split()[0]) - 50} s ago"})
    await pilot.press("G")
    await until(pilot, view, last_is("50 s ago"))


async def test_saving_writes_the_raw_bytes(logs, tmp_path):
    _, view = logs
    raw = [b"\x1b[31mred\x1b[0m\n", b"\xff\xfe\r\n", b"no end"]
    view.append([out(piece) for piece in raw])
    path = tmp_path / "saved.log"
    assert await view.save(path) == len(b"".join(raw))
    assert path.read_bytes() == b"".join(raw)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        await view.save(path)
    view.set_filter("red")
    view._tick()
    await view.save(tmp_path / "filtered.log")
    assert (tmp_path / "filtered.log").read_bytes() == raw[0]


async def test_clear(logs):
    pilot, view = logs
    view.append(numbered(0, 30))
    await until(pilot, view, last_is("line 29"))
    view.clear()
    view.append([out("new\n")])
    await until(pilot, view, lambda shown: shown[0] == "  new")
