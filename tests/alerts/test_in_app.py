"""Alerts in the app: how many fire, the bell, the page, silences, and one process that runs the rules."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec import structs
from tests.alerts.conftest import Receiver
from tests.tui.app.scene import NOW, fleet, screen_text, until

from sandbox_console.model.action import Remove
from sandbox_console.model.alert import Alert, AlertState
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.service import Config, Consent, open_console
from sandbox_console.service.alert_options import AlertChannel, AlertOptions, AlertRule
from sandbox_console.service.alerts.alerts import AlertBook
from sandbox_console.service.alerts.store import AlertStore, Changes
from sandbox_console.service.alerts.watch import alerts_folder
from sandbox_console.service.config import TuiOptions
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui import app as app_module
from sandbox_console.tui.alerts import alert_watch
from sandbox_console.tui.alerts.alerts_screen import AlertsScreen
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.widgets.table.table import FleetTable

HOSTILE = "[@click=app.quit]x[/]\x1b]52;c;ZXZpbA==\x07\u202eevil"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(app_module, "ALERTS_AFTER_S", 0.05)
    monkeypatch.setattr(alert_watch, "LOOK_S", 0.1)


def config(url: str = "", **rules: AlertRule) -> Config:
    channels = {"ops": AlertChannel(kind="webhook", url=url)} if url else {}
    rules = rules or {"died": AlertRule(on="state", severity="critical")}
    return Config(
        backend="fake", tui=TuiOptions(stats_interval_s=3600.0), alerts=AlertOptions(rules=rules, channels=channels)
    )


def dying() -> list[Sandbox]:
    """The fleet, of which three end after the rules have begun to be watched: what ended before fires nothing."""
    soon = time.time() + 60
    return [one if one.status.live else structs.replace(one, finished_at=soon) for one in fleet()]


async def opened(stack: AsyncExitStack, made: Config, size=(120, 40), **options):
    console = await stack.enter_async_context(open_console(made, backends=[FakeBackend(dying())], **options))
    app = ConsoleApp(console)
    pilot = await stack.enter_async_context(app.run_test(size=size, notifications=True))
    await until(pilot, lambda: app.fleet.sandboxes)
    return app, pilot


def put(console, *alerts: Alert) -> None:
    store = AlertStore(alerts_folder(console))
    store.commit(Changes(alerts={one.id: one for one in alerts}), time.time())
    store.close()


def alert(number: int = 0, **more) -> Alert:
    now = time.time()
    fields = {"state": AlertState.FIRING, "since": now, "text": "out of memory", "fired_at": now, "name": "crashed"}
    subject = more.pop("subject", "fake/local/cccccccccccc")
    return Alert(f"alert_{number}", "died", "critical", subject, **(fields | more))


async def test_what_fires_is_counted_rung_and_listed() -> None:
    async with AsyncExitStack() as stack:
        app, pilot = await opened(stack, config())
        rung: list[int] = []
        app.bell = lambda: rung.append(1)  # type: ignore[method-assign]
        await until(pilot, lambda: "! 3 alerts" in screen_text(app))
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: isinstance(app.screen, AlertsScreen) and "▲ firing" in screen_text(app))
        shown = screen_text(app)
        assert "out of memory: the kernel killed it at its limit" in shown
        assert "this console is running the rules" in shown
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is app.main)
        assert len(rung) <= 1


async def test_two_consoles_silence_the_same_alert_and_one_ends_it() -> None:
    async with AsyncExitStack() as stack:
        (one, first), (other, second) = [await opened(stack, config(), size=(100, 30)) for _ in range(2)]
        for app, pilot in ((one, first), (other, second)):
            await until(pilot, lambda app=app: "! 3 alerts" in screen_text(app))
            await pilot.press("exclamation_mark")
            await until(pilot, lambda app=app: isinstance(app.screen, AlertsScreen) and "firing" in screen_text(app))
        for app, pilot in ((one, first), (other, second)):
            await pilot.press("G", "s")
            await until(pilot, lambda app=app: "Silence died" in screen_text(app))
        await first.press("enter")
        await second.press("enter")
        for app, pilot in ((one, first), (other, second)):
            await until(pilot, lambda app=app: "⊘ silenced" in screen_text(app))
        book = AlertBook(one.service)
        [silence] = await book.silences()
        assert silence.sandbox.startswith("fake/local/")
        key = one.screen.query_one(FleetTable).cursor_key
        [found] = [each for each in await book.alerts() if each.silenced]
        assert key == found.id, "the one under the cursor"
        await first.press("s")
        await until(first, lambda: "⊘ silenced" not in screen_text(one))
        await until(second, lambda: "⊘ silenced" not in screen_text(other))
        assert not await book.silences()
        book.close()


async def test_several_consoles_send_each_message_once(receiver: Receiver) -> None:
    async with AsyncExitStack() as stack:
        apps = [await opened(stack, config(receiver.url), size=(80, 24)) for _ in range(3)]
        for app, pilot in apps:
            await until(pilot, lambda app=app: "! 3 alerts" in screen_text(app))
        _, pilot = apps[0]
        await until(pilot, lambda: len(receiver.alerts()) >= 3)
        await asyncio.sleep(1.5)
        assert len(receiver.alerts()) == len(set(receiver.alerts())) == 3


async def test_a_console_takes_over_when_the_one_that_ran_the_rules_ends() -> None:
    async with AsyncExitStack() as stack:
        async with AsyncExitStack() as inner:
            app, pilot = await opened(inner, config(), size=(80, 24))
            await until(pilot, lambda: "! 3 alerts" in screen_text(app))
            other, second = await opened(stack, config(), size=(80, 24))
            await until(second, lambda: "! 3 alerts" in screen_text(other))
        remove = Remove(SandboxRef("fake", "local", "dddddddddddd"), force=True)
        await other.service.perform(remove, consent=Consent(yes=True, confirm=remove.ref.id)).result()
        await until(second, lambda: "! 2 alerts" in screen_text(other), 60)


async def test_hostile_text_and_a_flood_of_alerts() -> None:
    async with AsyncExitStack() as stack:
        app, pilot = await opened(stack, config(idle=AlertRule(on="backend")), size=(80, 24))
        rung: list[int] = []
        app.bell = lambda: rung.append(1)  # type: ignore[method-assign]
        await until(pilot, lambda: app._alerts is not None)
        await asyncio.sleep(0.5)
        watch = app.alert_watch()
        watch._take([alert(at, name=HOSTILE, text=HOSTILE) for at in range(2000)], new=True)
        await until(pilot, lambda: "! 2000 alerts" in screen_text(app))
        assert rung == [1], "one bell for all of them"
        assert not set("\x1b\x07\u202e") & set(screen_text(app))


async def test_messages_that_have_not_arrived_are_told(receiver: Receiver) -> None:
    receiver.status = 503
    async with AsyncExitStack() as stack:
        app, pilot = await opened(stack, config(receiver.url), size=(100, 30))
        await until(pilot, lambda: receiver.tries)
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: "✉ ops: 1 message has not arrived: " in screen_text(app))
        assert "503" in screen_text(app)


async def test_a_read_only_console_shows_alerts_and_changes_none() -> None:
    made = config()
    made = structs.replace(made, policy=structs.replace(made.policy, read_only=True))
    async with AsyncExitStack() as stack:
        app, pilot = await opened(stack, made, size=(100, 30))
        put(app.service, alert())
        await until(pilot, lambda: "! 1 alert" in screen_text(app))
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: "no process is running the rules" in screen_text(app))
        await pilot.press("s")
        await until(pilot, lambda: "Silence died" in screen_text(app))
        await pilot.press("enter")
        await until(pilot, lambda: "read-only" in screen_text(app))


def test_a_silence_for_the_same_is_made_longer_and_not_twice(tmp_path: Path) -> None:
    store = AlertStore(tmp_path)
    first = store.silence("died", "a", NOW + 100, "ann", "", NOW)
    again = store.silence("died", "a", NOW + 50, "bob", "", NOW)
    assert (again.id, again.until) == (first.id, NOW + 100)
    assert store.silence("died", "a", NOW + 500, "bob", "", NOW).until == NOW + 500
    assert store.silence("died", "b", NOW + 500, "bob", "", NOW).id != first.id
    assert [one.id for one in store.silences(NOW)] == [first.id, first.id + 1]
    assert store.silence("died", "a", NOW + 900, "bob", "", NOW + 600).id not in (first.id, first.id + 1)
    store.close()


async def test_why_on_a_page_without_alerts_says_that_there_is_none() -> None:
    made = config()
    made = structs.replace(made, policy=structs.replace(made.policy, read_only=True))  # it runs no rules
    async with AsyncExitStack() as stack:
        app, pilot = await opened(stack, made)
        await pilot.press("exclamation_mark")
        await until(pilot, lambda: isinstance(app.screen, AlertsScreen))
        await pilot.press("full_stop")
        await until(pilot, lambda: "There is no alert." in screen_text(app))
        assert isinstance(app.screen, AlertsScreen)
