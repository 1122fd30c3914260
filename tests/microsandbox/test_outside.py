"""The console over microVMs, containers and namespaces at once, driven from outside: command line, screen, browser."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser.test_chromium import page, sees
from tests.support.engine import IMAGE, DockerEngine
from tests.support.microvm.outside import PATIENCE_S, Outside, microvm, outside
from tests.support.require import requires

__all__ = ["page"]

pytestmark = [requires("machine"), requires("chromium"), requires("docker"), pytest.mark.timeout(900)]

TICK = "i=0; while :; do i=$((i+1)); echo tick-$i; sleep 3; done"
PICTURE = os.environ.get("PICTURE")


@pytest.fixture(scope="module")
def there() -> Iterator[Outside]:
    folder = Path(tempfile.mkdtemp(prefix="sc-out-"))
    engine = DockerEngine(folder)
    try:
        engine.start()
        engine.build_images()
        with outside(engine) as found:
            for words in (
                microvm("agent-microvm", TICK),
                microvm("agent-idle", "exec sleep 1000"),
                ("create", "api-container", "--backend", "docker", "--image", IMAGE, "--", "sh", "-c", TICK),
                ("create", "build-namespace", "--backend", "bubblewrap", "--image", "host", "--", "sh", "-c", TICK),
            ):
                code, _, err = found.cli(*words)
                assert code == 0, (words, err)
            yield found
    finally:
        engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


ALL = {"agent-microvm", "agent-idle", "api-container", "build-namespace"}


def test_the_command_line_has_all_of_them(there: Outside) -> None:
    assert there.states() == dict.fromkeys(ALL, "running")
    code, out, err = there.cli("exec", "agent-microvm", "--", "sh", "-c", "echo inside; exit 7")
    assert (code, out) == (7, "inside\n"), err
    code, out, err = there.cli("logs", "agent-microvm", "--tail", "3")
    assert code == 0, err
    assert out.startswith("tick-")


def test_the_screen_lists_follows_and_enters_a_microvm(there: Outside) -> None:
    with there.screen() as screen:
        screen.sees(*ALL)
        screen.press("/agent-microvm\r")
        screen.sees("1 of 4", "agent-microvm  ●", "tick-")
        screen.press("s")
        screen.sees("~ #")
        screen.press("echo $((6 * 7))-from-$(uname -s)\r")
        screen.sees("42-from-Linux")


async def test_the_browser_stops_a_microvm_on_record(there: Outside, page) -> None:
    with there.browser() as link:
        await page.goto(link)
        for name in sorted(ALL):
            await sees(page, name, PATIENCE_S)
        if PICTURE:
            await page.screenshot(path=PICTURE)
        await page.keyboard.type("/agent-idle")
        await page.keyboard.press("Enter")
        await sees(page, "1 of", PATIENCE_S)
        await page.keyboard.press("x")
        await sees(page, "Cancel", PATIENCE_S)
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await sees(page, "exited", PATIENCE_S)
    assert there.states() == dict.fromkeys(ALL, "running") | {"agent-idle": "exited"}
    code, out, err = there.cli("audit", "ls", "--json")
    assert code == 0, err
    stopped = next(row for row in map(json.loads, out.splitlines()) if row["action"] == "stop")
    assert (stopped["actor"].partition(":")[0], stopped["outcome"]) == ("browser", "ok")
