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
from tests.support.microimage import IMAGE as MICRO_IMAGE
from tests.support.microvm.outside import COMMAND, PATIENCE_S, Outside, outside
from tests.support.require import requires

__all__ = ["page"]

pytestmark = [requires("machine"), requires("chromium"), requires("docker"), pytest.mark.timeout(1500)]

TICK = "i=0; while :; do i=$((i+1)); echo tick-$i; sleep 3; done"
SCRIPT = ("--", "sh", "-c", TICK)
MADE = {
    "agent-microvm": ("--backend", "microsandbox", "--image", MICRO_IMAGE, "--memory", "128M", *SCRIPT),
    "api-container": ("--backend", "docker", "--image", IMAGE, *SCRIPT),
    "build-jail": ("--backend", "bubblewrap", "--image", "host", *SCRIPT),
}
RUNNING = tuple(MADE)
PICTURE = os.environ.get("PICTURE")
if PICTURE:  # for the eye; one that runs takes a fifth of the machine or more, also where it is idle
    MADE["agent-done"] = (*MADE["agent-microvm"][:-1], "echo done")
TYPED, KEPT, SHELL = "Enter keeps", "  Esc clears", "Leave the shell"
"""What says who has the keys: the filter, the list below a filter, the shell. A key that comes sooner goes elsewhere."""


@pytest.fixture(scope="module")
def there() -> Iterator[Outside]:
    folder = Path(tempfile.mkdtemp(prefix="sc-out-"))
    engine = DockerEngine(folder)
    try:
        engine.start()
        engine.build_images()
        with outside(engine) as found:
            for name, words in MADE.items():
                code, _, err = found.cli("create", name, *words)
                assert code == 0, (name, err)
            yield found
    finally:
        engine.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_command_line_has_all_of_them(there: Outside) -> None:
    states = there.states()
    assert {name: states[name] for name in RUNNING} == dict.fromkeys(RUNNING, "running")
    code, out, err = there.cli("exec", "agent-microvm", "--", "sh", "-c", "echo inside; exit 7")
    assert (code, out) == (7, "inside\n"), err
    code, out, err = there.cli("logs", "agent-microvm", "--tail", "3")
    assert code == 0, err
    assert out.startswith("tick-")


def test_openssh_runs_a_command_in_a_microvm(there: Outside) -> None:
    code, block, err = there.cli("ssh-config")
    assert code == 0, err
    block = block.replace("-m sandbox_console", COMMAND[-1])
    code, _, err = there.run("sh", "-c", 'echo "$1" >/rw/ssh_config', "sh", block)
    assert code == 0, err
    code, out, err = there.run("ssh", "-F", "/rw/ssh_config", "agent-microvm.sandbox", "echo in-$(uname -s); exit 6")
    assert (code, out) == (6, "in-Linux\n"), err
    code, out, err = there.run("ssh", "-F", "/rw/ssh_config", "-tt", "agent-microvm.sandbox", "tty; exit 5")
    assert (code, "/dev/pts/" in out) == (5, True), err


def test_the_screen_lists_follows_and_enters_a_microvm(there: Outside) -> None:
    with there.screen() as screen:
        screen.sees(*MADE)
        screen.press("/")
        screen.sees(TYPED)
        screen.press("agent-microvm")
        screen.sees(f"1 of {len(MADE)}")
        screen.press("\r")
        screen.sees(KEPT, "agent-microvm  ●", "tick-")
        screen.press("s")
        screen.sees("/ #", SHELL)
        screen.press("echo $((6 * 7))-from-$(uname -s)\r")
        screen.sees("42-from-Linux")


async def test_the_browser_stops_a_microvm_on_record(there: Outside, page) -> None:
    with there.browser() as link:
        await page.set_viewport_size({"width": 1280, "height": 720})  # wide enough for list and detail
        await page.goto(link, wait_until="commit", timeout=PATIENCE_S * 1000)
        await see(page, *MADE)
        if PICTURE:
            await picture(page, PICTURE)
        await choose(page, "agent-microvm")
        await page.keyboard.press("x")
        await see(page, "Cancel")
        await page.keyboard.press("y")
        await see(page, "agent-microvm  ■")
    running = {name for name, status in there.states().items() if status == "running"}
    assert running == {"api-container", "build-jail"}
    code, out, err = there.cli("audit", "ls", "--json")
    assert code == 0, err
    stopped = next(row for row in map(json.loads, out.splitlines()) if row["action"] == "stop")
    assert (stopped["actor"].partition(":")[0], stopped["outcome"]) == ("browser", "ok")


async def choose(page, name: str) -> None:
    """Put the cursor on a sandbox by filtering to it."""
    await page.keyboard.press("/")
    await see(page, TYPED)
    await page.keyboard.type(name)
    await see(page, f"1 of {len(MADE)}")
    await page.keyboard.press("Enter")
    await see(page, KEPT, f"{name}  ●")


async def picture(page, path: str) -> None:
    """One of all of them, the cursor on a microVM that is measured and speaks."""
    await choose(page, "agent-microvm")
    await see(page, "tick-")
    await page.keyboard.press("Escape")
    await see(page, *MADE, "exited", "↓")
    await page.screenshot(path=path)


async def see(page, *texts: str) -> None:
    for text in sorted(texts):
        await sees(page, text, PATIENCE_S)
