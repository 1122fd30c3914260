"""The Logs tab on a real log that its supervisor rotates: a search and the first line agree with what `logs` prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.bubblewrap.conftest import Make
from tests.tui.app.scene import screen_text, until

from sandbox_console.model.log import LogGap, LogQuery
from sandbox_console.service import Config, open_console
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.logs.logs_tab import LogsPane


@pytest.fixture
def options() -> dict[str, int]:
    return {"log_mib": 1, "log_files": 4}


async def test_a_search_and_the_first_line_agree_with_logs(
    make: Make, backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sandbox_console.tui.logs.logs_tab.TAIL", 1000)
    box = await make("sh", "-c", "seq -f 'line %06g of many, and then some more of it' 1 40000; sleep 1000")
    async with open_console(Config(), backends=[backend]) as console:
        app = ConsoleApp(console)
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.fleet.sandboxes)
            view = app.main.query_one("#logs", LogsPane).view
            await until(pilot, lambda: view.total >= 1000 and "040000" in screen_text(app))
            printed = [item async for batch in console.logs(box.ref, LogQuery()) for item in batch]
            [gap] = [item for item in printed if isinstance(item, LogGap)]
            lines = [item.data for item in printed if not isinstance(item, LogGap)]
            assert gap.lines and gap.lines + len(lines) == 40_000
            wanted = lines[5][5:11].decode()
            await pilot.press("l", "slash", *wanted, "enter")
            await until(pilot, lambda: f"match 1/1: {wanted}  the log begins here" in screen_text(app))
            assert f"{gap.lines:,} lines rotated away" in screen_text(app)
            await pilot.press("g")
            await until(pilot, lambda: f"[{gap.lines:,} lines lost: rotated away]" in screen_text(app))
            held = b"".join(view.lines.raw()()).splitlines(keepends=True)[1:]
            assert held == lines
