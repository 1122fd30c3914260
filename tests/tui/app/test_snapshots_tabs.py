"""How each tab of the detail looks: with what it shows, with nothing, while it asks, refused, and with too much."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.tui.app.scene import NOW, NS, fleet, log_lines, ref, samples, sandbox, screen_text, until
from tests.tui.app.sheet import MIDDLE, SIZES, SMALL

from sandbox_console.errors import BackendError
from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.guest import GuestEvent, GuestProcess
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.model.sandbox import Exit, Fact, Stats, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Faults, Within
from sandbox_console.tui.detail.tab_bar import TABS
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.logs.logs_tab import LogsPane
from sandbox_console.tui.widgets.terminal.terminal import TerminalView

ID = "aaaaaaaaaaaa"
KEYS = {tab.id: str(number % 10) for number, tab in enumerate(TABS, 1)}
REFUSED = BackendError("the engine is busy with something else", hint="try again in a minute")
ASKED = ("logs", "stats", "processes", "list_dir", "egress", "egress_records", "guest_events", "raw")
LONG = "a-word-that-is-much-longer-than-anybody-would-have-thought-and-then-some-more-of-it"

pytestmark = pytest.mark.timeout(600)
"""Many pictures of one app: 15 s on a quiet machine."""


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    monkeypatch.setattr("sandbox_console.testing.fake_guest.time.time", lambda: NOW)
    # One sample: else a graph grows with the time that it takes to look at it.
    monkeypatch.setattr("sandbox_console.tui.detail.stats_tab.INTERVAL_S", 3600.0)


def denied(at, host, port=443, **more):
    return EgressRecord(NOW - 60 + at, "agent", host, port, allowed=False, reason="not_allowed", **more)


def inside():
    return Within(
        files={ID: {"/app/main.py": b"print('hello')\n" * 9, "/app/data.bin": b"\0" * 3000, "/notes.md": b"# Notes\n"}},
        processes={ID: [
            GuestProcess(1, 0, "root", 0.4, 3 << 20, "sleeping", "tini -- python main.py"),
            GuestProcess(7, 1, "agent", 93.0, 44 << 20, "running", "python main.py --loop"),
            GuestProcess(12, 7, "agent", 0.1, 2 << 20, "sleeping", "sh -c 'curl example.org'"),
        ]},
        guest_events={ID: [
            GuestEvent(NOW - 500, "create", attributes={"image": "python:3.12"}), GuestEvent(NOW - 499, "start"),
            GuestEvent(NOW - 60, "oom", "a process was killed"), GuestEvent(NOW - 30, "exec_start", "sh -c id"),
        ]},
        egress={ID: [
            EgressRecord(NOW - 50, "agent", "acme.org", 443, allowed=True, rule="acme.org"),
            denied(20, "pypi.example"), denied(21, "pypi.example"), denied(30, "ssh.example", 22),
        ]},
    )  # fmt: skip


def much():
    """More of everything than fits on any screen."""
    spec = SandboxSpec(
        "agent", "registry.example.com/" + LONG, ("sh", "-c", f"while :; do echo {LONG} {LONG}; done"), cpus=0.5,
        env={f"VARIABLE_{at}": LONG for at in range(12)}, egress=tuple(f"*.{at}.example.com" for at in range(40)),
        labels={f"label-{at}": LONG for at in range(20)},
    )  # fmt: skip
    facts = tuple(Fact(f"fact-{at}", LONG, f"because of {LONG} {LONG}", enforced=at % 3 > 0) for at in range(30))
    box = sandbox(ID, "agent", spec=spec, labels=spec.labels, effective=facts, image=spec.image)
    lines = [
        f"{at} {LONG * (1 + at % 4)}\n" if at % 5 else f'{{"level":"error","msg":"no","at":{at}}}\n'
        for at in range(200)
    ]
    within = Within(
        files={ID: {f"/{at:03}-{LONG}.txt": b"x" * at * 1000 for at in range(150)}},
        processes={ID: [GuestProcess(at, at - 1, LONG, 1e6, 1 << 40, "sleeping", f"{at} {LONG} {LONG}") for at in range(1, 80)]},
        guest_events={ID: [GuestEvent(NOW - 500 + at, LONG, LONG, {"key": LONG}) for at in range(150)]},
        egress={ID: [denied(at / 3, f"{at}.{LONG}.example.com") for at in range(150)]},
    )  # fmt: skip
    logs = {ID: [LogRecord(int((NOW - 300 + at) * NS), Stream.STDOUT, line.encode()) for at, line in enumerate(lines)]}
    stats = {ID: [Stats(NOW, 9999.0, 900 << 40, 901 << 40, pids=10**7, net_rx=1e13, net_tx=1e13)]}
    return FakeBackend([box], logs=logs, stats=stats, within=within, clock=lambda: NOW)


async def each_tab(app, pilot, sheets, shown, *, sizes=SIZES):
    """A sheet of each tab; ``shown`` says by tab what tells that it is there."""
    for tab in TABS:
        if tab.id not in shown:
            continue
        await pilot.press("escape", KEYS[tab.id])  # digits are times in logs
        words = shown[tab.id]
        await sheets(app, pilot, tab.id, ready=lambda words=words: words in screen_text(app), sizes=sizes)


async def test_what_there_is(run_app, sheets):
    fake = FakeBackend(fleet(), logs=log_lines(), stats=samples(), within=inside(), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        shown = {
            "logs": "step 8 of 9", "spec": "not enforced", "stats": "256M", "processes": "curl example.org",
            "files": "notes.md", "egress": "ssh.example", "events": "exec_start", "inspect": "python:3.12",
        }  # fmt: skip
        await each_tab(app, pilot, sheets, shown)
        await pilot.press("r")
        await sheets(app, pilot, "inspect-raw", ready=lambda: '"Status": "running"' in screen_text(app))
        await pilot.press("r", "slash", *"image")
        await sheets(app, pilot, "inspect-search")


async def test_a_shell(run_app, sheets):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        await pilot.press("2")
        await sheets(app, pilot, "before", ready=lambda: "shell" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.focused, TerminalView))
        await pilot.press(*"hello")
        await sheets(app, pilot, "open", ready=lambda: "hello" in app.focused.screen_text())


async def test_nothing_in_it(run_app, sheets):
    box = structs.replace(sandbox(ID, "ended", Status.EXITED, managed=False, exit=Exit(0)), image="")
    fake = FakeBackend([box], clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        shown = {
            "logs": "It wrote nothing", "shell": "ended", "spec": "does not report its spec", "stats": "nothing to measure",
            "processes": "it has no processes", "egress": "ended", "events": "No events yet",
            "audit": "No audit rows",
        }  # fmt: skip
        await each_tab(app, pilot, sheets, shown)


async def test_while_it_is_asked(run_app, fake, sheets):
    async with run_app(fake) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        fake.faults = Faults(dict.fromkeys(ASKED, 3600.0))
        shown = {
            "processes": "Asking",
            "files": "Asking",
            "events": "No events yet",
            "egress": "agent",
            "stats": "CPU",
            "inspect": "Inspect",
        }
        await each_tab(app, pilot, sheets, shown, sizes=[MIDDLE])


async def test_refused(run_app, fake, sheets):
    async with run_app(fake) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        fake.faults = Faults(dict.fromkeys(ASKED, REFUSED))
        app.main.table.move_to(ref("bbbbbbbbbbbb"))
        await each_tab(app, pilot, sheets, {"logs": "the engine is busy"})
        app.main.table.move_to(ref(ID))
        shown = dict.fromkeys(("stats", "processes", "files", "egress", "events", "inspect"), "the engine is busy")
        await each_tab(app, pilot, sheets, shown)


async def test_more_than_fits(run_app, sheets):
    async with run_app(much()) as (app, pilot):
        await until(pilot, lambda: app.fleet.stats)
        shown = {
            "logs": "199 ", "spec": "ASKED", "stats": "CPU", "processes": " 9 ", "files": "000-", "egress": "149.",
            "events": LONG[:20], "inspect": "Labels",
        }  # fmt: skip
        await each_tab(app, pilot, sheets, shown)


async def test_logs_of_several(run_app, fake, sheets):
    async with run_app(fake) as (app, pilot):
        pane = app.main.query_one(LogsPane)
        app.main.table.marks.add([ref(ID), ref("bbbbbbbbbbbb")])
        await pilot.press("L")
        await sheets(app, pilot, ready=lambda: pane.merged and "step 8 of 9" in screen_text(app))


async def test_logs_of_one_that_is_gone(run_app, fake, sheets):
    async with run_app(fake) as (app, pilot):
        app.main.query_one(LogsPane)._clock = lambda: NOW
        await until(pilot, lambda: "step 8 of 9" in screen_text(app))
        del fake.sandboxes[ID]
        await fake.tell(fake._listed())
        await until(pilot, lambda: app.main.selected is not None and app.main.selected.ref != ref(ID))
        await pilot.press("l", "p")
        await until(pilot, lambda: "are gone" in screen_text(app))
        await sheets(app, pilot, "list", sizes=[SMALL, MIDDLE])
        await pilot.press("enter")
        await sheets(app, pilot, "log", ready=lambda: "step 8 of 9" in screen_text(app), sizes=[SMALL, MIDDLE])


async def test_a_file_read(run_app, sheets):
    fake = FakeBackend(fleet(), within=inside(), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await pilot.press("6")
        await until(pilot, lambda: "notes.md" in screen_text(app))
        app.main.query_one("#files-table").move_to("notes.md")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await sheets(app, pilot, ready=lambda: "# Notes" in screen_text(app))
