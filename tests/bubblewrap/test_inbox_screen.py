"""The inbox on a real sandbox that is refused all the time: it reads the denial feed and asks no backend for its list."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Make
from tests.tui.app.scene import until

from sandbox_console.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_console.service import Config, open_console
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.egress.inbox_screen import EgressScreen
from sandbox_console.tui.widgets.table.table import FleetTable

OPEN_S = float(os.environ.get("INBOX_OPEN_S", "60"))
ASKS = "n=0; while :; do n=$((n+1)); curl -s -m 5 -o /dev/null http://denied-$n.example/; sleep 1; done"
READS = ("_list", "_inspect")
"""What `list`, `inspect` and the watcher read the state folder by."""


@pytest.mark.slow
async def test_the_inbox_open_for_a_minute_asks_no_backend_for_its_list(
    make: Make, backend: BubblewrapBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    box = await make("sh", "-c", ASKS, image="host", egress=("allowed.example",))
    asked: Counter[str] = Counter()
    for name in READS:
        monkeypatch.setattr(backend, name, _counting(asked, name, getattr(backend, name)))
    async with open_console(Config(), backends=[backend]) as console:
        app = ConsoleApp(console)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.fleet.sandboxes)
            assert asked["_list"], "the counters count nothing"
            await pilot.press("i")
            await until(pilot, lambda: isinstance(app.screen, EgressScreen) and app.screen.query_one(FleetTable).rows)
            asked.clear()
            began, hosts = time.monotonic(), len(list(console.denials.of(box.ref).hosts()))
            while time.monotonic() - began < OPEN_S:
                await pilot.pause(0.2)
            assert asked["_list"] == asked["_inspect"] == 0, dict(asked)
            assert len(list(console.denials.of(box.ref).hosts())) > hosts, (
                "nothing was denied meanwhile: this proved nothing"
            )


def _counting(asked: Counter[str], name: str, real):
    def count(*words, **options):
        asked[name] += 1
        return real(*words, **options)

    return count
