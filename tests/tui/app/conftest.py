"""The app on a console with backends in memory and a clock that stands still; all else is real."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from tests.tui.app.scene import NOW, fleet, log_lines, make_console, samples, until
from tests.tui.app.sheet import Sheets

from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.app import ConsoleApp


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SANDBOX_CONSOLE_ACTOR", "user:tester")
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture
def fake():
    return FakeBackend(fleet(), logs=log_lines(), stats=samples(), clock=lambda: NOW)


@pytest.fixture
def run_app(fake):
    """``async with run_app() as (app, pilot)``: at 120x40 on the fleet above, waited for until it shows it."""

    @asynccontextmanager
    async def run(*backends, size=(120, 40), config=None, read_only=False, ready=True):
        async with make_console(*(backends or (fake,)), config=config, read_only=read_only) as console:
            app = ConsoleApp(console, clock=lambda: NOW)
            async with app.run_test(size=size, notifications=True) as pilot:
                if ready:
                    await until(pilot, lambda: app.fleet.sandboxes)
                yield app, pilot

    return run


@pytest.fixture
def sheets(snapshot):
    """``await sheets(app, pilot, "name")``: what is on screen at three sizes in two themes looks as it did."""
    found = Sheets(snapshot)
    yield found
    found.finish()
