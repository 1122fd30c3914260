"""How the pages over the list look: images, snapshots, attach, drafts; and these, pulse, bulk and the inbox while they
load, refused, with nothing, and with too much."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import NOW, NS, fleet, log_lines, ref, samples, sandbox, screen_text, until
from tests.tui.app.sheet import MIDDLE, SIZES, SMALL

from sandbox_console.errors import BackendError
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.image import Image, Snapshot
from sandbox_console.model.log import LogRecord, Stream
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within
from sandbox_console.tui.bulk.results_screen import BulkConfirm, BulkScreen
from sandbox_console.tui.egress.draft_screen import EgressDraftScreen
from sandbox_console.tui.pulse.history import Total
from sandbox_console.tui.shell.attach_screen import AttachScreen
from sandbox_console.tui.widgets.terminal.terminal import TerminalView

ID = "aaaaaaaaaaaa"
HERE = ("fake", "local")
FEW = [SMALL, MIDDLE]
HUNG = 3600.0
REFUSED = BackendError("the engine is busy with something else", hint="try again in a minute")
LONG = "a-word-that-is-much-longer-than-anybody-would-have-thought-and-then-some-more-of-it"
LABEL = LONG[:54]
"""As long as a label of a host name may be, about."""
IMAGES = [
    Image(*HERE, "sha256:" + "1" * 64, ("spare:1", "spare:latest"), size_bytes=7 << 20, created_at=NOW - 100),
    Image(*HERE, "sha256:" + "2" * 64, (), size_bytes=5 << 30, created_at=NOW - 9000),
]
SNAPSHOTS = [
    Snapshot(*HERE, "before-the-upgrade", "agent", NOW - 4000, 48 << 20),
    Snapshot(*HERE, "with-memory", "builder", NOW - 90, 1 << 30, full=True),
]

pytestmark = pytest.mark.timeout(600)
"""Many pictures of one app: 15 s on a quiet machine."""


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    monkeypatch.setattr("sandbox_console.testing.fake_guest.time.time", lambda: NOW)


def says(app, *texts):
    return lambda: all(text in screen_text(app) for text in texts)


def asked(at, host, port=443, *, allowed=False):
    reason, rule = ("", "acme.org") if allowed else ("not_allowed", "")
    return EgressRecord(NOW - 60 + at, "agent", host, port, allowed=allowed, reason=reason, rule=rule)


def stocked(**more):
    return FakeBackend(fleet(), within=Within(images=IMAGES, snapshots=SNAPSHOTS), clock=lambda: NOW, **more)


async def page(app, pilot, sheets, key, name, *, ready, sizes=FEW):
    await pilot.press(key)
    await sheets(app, pilot, name, ready=says(app, *ready), sizes=sizes)
    await pilot.press("escape")
    await until(pilot, lambda: app.screen is app.main)


async def test_images_and_snapshots(run_app, sheets):
    lacks = Capabilities(frozenset({Capability.PAUSE}), {Capability.IMAGES: "it has none of its own"})
    dead = FakeBackend(name="docker", dead=True, reason="connection refused at /run/docker.sock")
    async with run_app(stocked(), FakeBackend(name="bubblewrap", capabilities=lacks), dead) as (app, pilot):
        ends = ("– bubblewrap", "✕ docker")
        await page(app, pilot, sheets, "P", "images", ready=("spare:latest", *ends), sizes=SIZES)
        await page(app, pilot, sheets, "V", "snapshots", ready=("with-memory", *ends), sizes=SIZES)


async def test_images_and_snapshots_otherwise(run_app, sheets):
    async with run_app(FakeBackend(), ready=False) as (app, pilot):
        await until(pilot, lambda: app.fleet.health and not app.fleet.connecting)
        await page(app, pilot, sheets, "P", "no-images", ready=("No images yet",))
        await page(app, pilot, sheets, "V", "no-snapshots", ready=("No snapshots yet",))
    fake = stocked(faults={"images": HUNG, "snapshots": REFUSED})
    async with run_app(fake) as (app, pilot):
        await page(app, pilot, sheets, "P", "images-asked", ready=("asking fake",), sizes=[MIDDLE])
        await page(app, pilot, sheets, "V", "snapshots-refused", ready=("the engine is busy",))
    many = [
        Image(*HERE, f"sha256:{at:064x}", (f"registry.example.com/{LONG}:{at}",), size_bytes=at << 30, created_at=NOW)
        for at in range(150)
    ]
    boxes = [sandbox(f"{at:012x}", f"{LONG}-{at}", image=many[0].names[0]) for at in range(40)]
    async with run_app(FakeBackend(boxes, within=Within(images=many), clock=lambda: NOW)) as (app, pilot):
        await page(app, pilot, sheets, "P", "images-many", ready=("150 images",))


async def test_attach(run_app, fake, sheets):
    async with run_app(fake) as (app, pilot):
        await until(pilot, lambda: app.main.selected is not None)
        await pilot.press("F")
        await until(pilot, lambda: isinstance(app.screen, AttachScreen))
        line = "".join(f"line {at}: {LONG}\n" for at in range(3))
        await fake.say(ref(ID), LogRecord(int(NOW * NS), Stream.STDOUT, line.encode()))
        view = app.screen.query_one(TerminalView)
        await until(pilot, lambda: "line 2" in view.screen_text())
        await sheets(app, pilot, ready=says(app, "attached"), sizes=FEW)


async def test_draft(run_app, sheets):
    records = [
        asked(0, "acme.org", allowed=True),
        *(asked(at, "pypi.example") for at in range(1, 4)),
        asked(5, "ssh.example", 22),
    ]
    fake = FakeBackend(fleet(), within=Within(egress={ID: records}), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await pilot.press("ctrl+e")
        await until(pilot, says(app, "3 as now"))
        area = app.screen.query_one("TextArea")
        area.load_text("allow acme.org\nallow pypi.example for 1h\ndeny ssh.example\n")
        await sheets(app, pilot, "changes", ready=says(app, "newly allowed (3)"))
        area.load_text("allow acme.org\nallow https://x.example/y\nmaybe z.example\n")
        await sheets(app, pilot, "problems", ready=says(app, "✕ Line 2"), sizes=FEW)


async def test_draft_otherwise(run_app, sheets):
    async with run_app(FakeBackend(fleet(), clock=lambda: NOW)) as (app, pilot):
        await pilot.press("ctrl+e")
        await sheets(app, pilot, "nothing-on-record", ready=says(app, "Nothing is on record"), sizes=FEW)
    many = [asked(at / 9, f"{at}.{LABEL}.example.com", 443 + at) for at in range(300)]
    fake = FakeBackend(fleet(), within=Within(egress={ID: many}), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await pilot.press("ctrl+e")
        await until(pilot, says(app, "300 as now"))
        app.screen.query_one("TextArea").load_text("\n".join(f"allow {at}.{LABEL}.example.com" for at in range(60)))
        await sheets(app, pilot, "much", ready=says(app, "newly allowed"), sizes=FEW)
    fake.faults.verbs.update(egress=HUNG)
    async with run_app(fake) as (app, pilot):
        await pilot.press("ctrl+e")
        await sheets(app, pilot, "read", ready=says(app, "Reading the rules"), sizes=[MIDDLE])
    fake.faults.verbs.update(egress=REFUSED)
    async with run_app(fake) as (app, pilot):
        await pilot.press("ctrl+e")
        await until(pilot, lambda: isinstance(app.screen, EgressDraftScreen))
        await sheets(app, pilot, "refused", ready=says(app, "the engine is busy"), sizes=FEW)


async def test_bulk_under_way_and_refused(run_app, sheets):
    fake = FakeBackend(fleet(), logs=log_lines(), stats=samples(), faults={"stop": HUNG}, clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        await bulk(app, pilot, "x")
        app.bulk.runs[-1]._clock = lambda: NOW
        await sheets(app, pilot, "under-way", ready=says(app, "begins no more"), sizes=FEW)
    fake = FakeBackend(fleet(), logs=log_lines(), stats=samples(), faults={"stop": REFUSED}, clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        await bulk(app, pilot, "x")
        await until(pilot, lambda: app.bulk.runs[-1].done)
        for at, item in enumerate(one for one in app.bulk.runs[-1].items if one.audit_id):
            item.took_s, item.audit_id = 0.25, at + 1
        app.bulk.runs[-1].version += 1
        await sheets(app, pilot, "refused", ready=says(app, "the engine is busy"), sizes=FEW)


async def bulk(app, pilot, key):
    await pilot.press("asterisk", key)
    await until(pilot, lambda: isinstance(app.screen, BulkConfirm))
    await pilot.press("y")
    await until(pilot, lambda: isinstance(app.screen, BulkScreen))


async def test_pulse_and_inbox_otherwise(run_app, sheets):
    slow = FakeBackend(faults={"open": HUNG})
    async with run_app(slow, ready=False) as (app, pilot):
        app.history.note = lambda _: None
        await pilot.press("u")
        await sheets(app, pilot, "pulse-asked", ready=says(app, "Waiting for the backends", "holds"), sizes=[MIDDLE])
        await pilot.press("escape", "i")
        await sheets(app, pilot, "inbox-asked", ready=says(app, "Waiting for the backends"), sizes=[MIDDLE])
    locked = FakeBackend(fleet(), faults={"egress_records": REFUSED}, clock=lambda: NOW)
    async with run_app(locked) as (app, pilot):
        await pilot.press("i")
        await sheets(app, pilot, "inbox-refused", ready=says(app, "the engine is busy", "that is known"), sizes=FEW)
    boxes = [sandbox(f"{at:012x}", f"{LONG}-{at}") for at in range(300)]
    within = Within(egress={boxes[0].ref.id: [asked(at / 9, f"{at}.{LABEL}.example.com") for at in range(300)]})
    dead = [FakeBackend(name=f"docker{at}", dead=True, reason=f"{LONG} " * 3) for at in range(6)]
    async with run_app(FakeBackend(boxes, within=within, clock=lambda: NOW), *dead) as (app, pilot):
        app.history.note = lambda _: None
        app.history.totals.extend(Total(at * 31 % 25000, (at % 90) << 40, 300, 300) for at in range(400))
        await until(pilot, lambda: len(app.fleet.dead) == 6 and len(app.fleet.stats) == 17)
        app.main.service.show_stats = lambda *_, **__: None  # a larger terminal has more rows, which are asked for
        await pilot.press("u")
        await sheets(app, pilot, "pulse-much", ready=says(app, "300 sandboxes", "holds", "300 hosts"), sizes=FEW)
        await pilot.press("escape", "i")
        await until(pilot, says(app, "300 hosts denied"))
        await pilot.press("g")  # the cursor stays with the host that came first
        await sheets(app, pilot, "inbox-much", sizes=FEW)


@pytest.fixture
def fake():
    return FakeBackend(fleet(), logs=log_lines(), stats=samples(), clock=lambda: NOW)
