"""From a denial to a rule and back with the keys of the app, on a real sandbox."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.egress.test_bubblewrap import Box
from textual.widgets import TextArea

from sandbox_console.policy.rules import Rules
from sandbox_console.service import Config, open_console
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.egress.draft_screen import EgressDraftScreen
from sandbox_console.tui.widgets.table.table import FleetTable

DEADLINE_S = 60.0


async def until(pilot: Any, check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline, text(pilot.app)
        await pilot.pause(0.05)


def text(app: ConsoleApp) -> str:
    return "\n".join("".join(part.text for part in line) for line in app.screen._compositor.render_strips())


async def allow_from_a_denial(box: Box, host: str, port: int) -> None:
    """The sandbox is refused; a person sees that, allows the host for an hour, and the sandbox gets through."""
    url = f"http://{host}:{port}/"
    assert await status(box, url) == "403"
    config = Config(backend=box.backend.name, policy=Rules(egress_ip=True))
    async with open_console(config, backends=[box.backend]) as console:
        app = ConsoleApp(console)
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await until(pilot, lambda: box.ref in app.fleet.sandboxes)
            app.main.table.move_to(box.ref)
            await pilot.press("o")
            await until(pilot, lambda: host in [row.key for row in denials(app).rows])
            denials(app).move_to(host)
            denials(app).focus()
            await pilot.press("a")
            await until(pilot, lambda: f"+ allow {host}:{port} for " in text(app))
            assert await status(box, url) == "403", "nothing is changed before the yes"
            await pilot.press("y")
            await until(pilot, lambda: f"checked: {host}:{port} is allowed" in text(app))
            assert await status(box, url) == "200"
            rules = (await box.backend.egress(box.ref)).rules
            [made] = [rule for rule in rules if rule.pattern == f"{host}:{port}"]
            assert made.until is not None
            assert made.source == "live"
            await take_it_back_by_a_draft(box, pilot, host, port)
            assert await status(box, url) == "403"
            assert (await box.backend.egress(box.ref)).rules == tuple(rule for rule in rules if rule != made)


async def take_it_back_by_a_draft(box: Box, pilot: Any, host: str, port: int) -> None:
    """A person leaves the rule out of a draft, sees what that would deny, and applies it."""
    app = pilot.app
    await pilot.press("ctrl+e")
    await until(
        pilot, lambda: isinstance(app.screen, EgressDraftScreen) and not app.screen.query_one(TextArea).disabled
    )
    area = app.screen.query_one(TextArea)
    kept = [line for line in area.text.splitlines() if not line.startswith(f"allow {host}:{port} until ")]
    assert len(kept) == len(area.text.splitlines()) - 1
    await until(pilot, lambda: "⊘ 0 newly denied" in text(app))
    area.text = "\n".join(kept)
    await until(pilot, lambda: "⊘ 1 newly denied" in text(app))
    await pilot.press("ctrl+s")
    await until(pilot, lambda: f"- allow {host}:{port} for " in text(app))
    await pilot.press("y")
    await until(pilot, lambda: f"checked: {host}:{port} is denied" in text(app))


def denials(app: ConsoleApp) -> FleetTable:
    [table] = app.screen.query("#egress-table").results(FleetTable)
    return table


async def status(box: Box, url: str) -> str:
    words = ("curl", "-s", "-m", "30", "-o", "/dev/null", "-w", "%{http_code}", url)
    return (await box.run(*words))[1]
