"""How the screens of the whole fleet look: pulse, the question for several and its results, the egress inbox."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import NOW, fleet, ref, screen_text, until
from tests.tui.app.sheet import SMALL

from sandbox_console.model.egress import EgressRecord
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within
from sandbox_console.tui.bulk.results_screen import BulkConfirm, BulkScreen
from sandbox_console.tui.egress.inbox_screen import EgressScreen
from sandbox_console.tui.egress.rule_dialog import EgressAskScreen
from sandbox_console.tui.pulse.history import Total

pytestmark = pytest.mark.timeout(600)
"""Many pictures of one app: 15 s on a quiet machine."""


async def test_pulse(run_app, fake, sheets):
    dead = FakeBackend(name="docker", dead=True, reason="connection refused at /run/docker.sock")
    async with run_app(fake, dead) as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3 and len(app.fleet.dead) == 1)
        app.history.note = lambda _: None
        app.history.totals.extend(Total(at * 3 % 250, (at % 90) * 9 << 20, 3, 3) for at in range(400))
        await pilot.press("u")
        await sheets(app, pilot, ready=lambda: "the chain holds" in screen_text(app))


async def test_pulse_of_nothing(run_app, sheets):
    async with run_app(FakeBackend(), ready=False) as (app, pilot):
        app.history.note = lambda _: None
        await until(pilot, lambda: app.fleet.health and not app.fleet.connecting)
        await pilot.press("u")
        await sheets(app, pilot, ready=lambda: "the chain holds" in screen_text(app))


async def test_one_action_on_several(run_app, sheets):
    async with run_app() as (app, pilot):
        await until(pilot, lambda: len(app.fleet.stats) == 3)
        await until(pilot, lambda: "step 8 of 9" in screen_text(app))
        await pilot.press("asterisk", "ctrl+d")
        await until(pilot, lambda: isinstance(app.screen, BulkConfirm))
        await sheets(app, pilot, "remove", ready=lambda: app.size[0] < 200 or "step 8 of 9" in screen_text(app))
        await pilot.press("escape", "x")
        await until(pilot, lambda: isinstance(app.screen, BulkConfirm))
        await pilot.press("y")
        await until(pilot, lambda: isinstance(app.screen, BulkScreen) and app.bulk.runs[-1].done)
        run = app.bulk.runs[-1]
        for item in run.items:
            item.took_s = 0.25 if item.took_s else None
        for at, item in enumerate(sorted((one for one in run.items if one.audit_id), key=lambda one: one.sandbox.name)):
            item.audit_id = at + 1
        run.version += 1
        await sheets(app, pilot, "results", ready=lambda: "● 2 ok" in screen_text(app))


async def test_egress_inbox(run_app, sheets, monkeypatch):
    monkeypatch.setattr("sandbox_console.testing.fake_guest.time.time", lambda: NOW)
    agent = ref("aaaaaaaaaaaa")
    denied = [
        EgressRecord(NOW - 60 + at, "agent", host, port, allowed=False, reason="not_allowed")
        for at, host, port in ((1, "pypi.example", 443), (2, "pypi.example", 443), (9, "ssh.example", 22))
    ]
    fake = FakeBackend(fleet(), clock=lambda: NOW, within=Within(egress={agent.id: denied}))
    async with run_app(fake) as (app, pilot):
        await pilot.press("i")
        await until(pilot, lambda: isinstance(app.screen, EgressScreen))
        await sheets(app, pilot, "rows", ready=lambda: "pypi.example" in screen_text(app))
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, EgressAskScreen))
        await sheets(app, pilot, "allow", ready=lambda: "+ allow" in screen_text(app))
    async with run_app(FakeBackend(), ready=False) as (app, pilot):
        await until(pilot, lambda: app.fleet.health and not app.fleet.connecting)
        await pilot.press("i")
        await sheets(app, pilot, "empty", ready=lambda: isinstance(app.screen, EgressScreen), sizes=[SMALL])
