"""A staged incident: twelve real sandboxes on bubblewrap and Docker, and the keys from the start of the app on.

At most three keys to which one it is, none to why, one to what it reached, two to stop it, two to keep the evidence.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.incident.conftest import until_ended
from tests.incident.test_deaths import _kill, _status
from tests.support.engine import IMAGE, DockerEngine
from tests.support.require import missing
from tests.tui.app.scene import screen_text, until

from sandbox_console.model import action
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config, Consent, Console, open_console
from sandbox_console.service.config import TuiOptions
from sandbox_console.service.incident.bundle_verify import verify as verify_bundle
from sandbox_console.tui.app import ConsoleApp
from sandbox_console.tui.incident.why_screen import WhyScreen

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ASKS = """
import time, urllib.request
while True:
    try:
        urllib.request.urlopen("http://exfiltrate.example/", timeout=5)
    except Exception as error:
        print(error)
    time.sleep(0.5)
"""
FLOODS = "while :; do head -c 400000 /dev/zero | tr '\\0' x; echo; sleep 0.1; done"
BUBBLEWRAP = {
    "bw-oom": ("exec tail /dev/zero", {"memory_mib": 32}),
    "bw-failed": ("echo 'cannot connect to the database' >&2; exit 3", {}),
    "bw-crash": ("sh -c 'kill -SEGV $$'; exit $?", {}),
    "bw-disk": ("dd if=/dev/zero of=/dev/full bs=1M count=1 || exit 1", {}),
    "bw-host-kill": ("sleep 1000", {}),
    "bw-lost": ("sleep 1000", {}),
    "bw-flood": (FLOODS, {}),
}
DOCKER = {
    "do-oom": ("exec tail /dev/zero", {"memory_mib": 32}),
    "do-killed": ("sleep 1000", {}),
    "do-stopped-by-us": ("sleep 1000", {}),
}
WHY = {
    "bw-oom": "out of memory", "do-oom": "out of memory", "bw-failed": "exit 3", "bw-crash": "signal 11|exit 139",
    "bw-disk": "exit 1", "bw-host-kill": "signal 9", "bw-lost": "its supervisor", "do-killed": "signal 9",
    "do-loop": "it ends and the engine",
}  # fmt: skip
"""What the list says of each one that has a fault; the others run, or were stopped on purpose."""


class Keys:
    """Presses keys and counts them."""

    def __init__(self, pilot) -> None:
        self.pilot = pilot
        self.counted: dict[str, int] = {}

    async def __call__(self, what: str, *keys: str) -> None:
        self.counted[what] = self.counted.get(what, 0) + len(keys)
        await self.pilot.press(*keys)


async def _made(console: Console, name: str, place: tuple[str, str], *command: str, **fields: object) -> SandboxRef:
    image = IMAGE if place[0] == "docker" else "host"
    spec = SandboxSpec(name, image, command, **fields)  # type: ignore[arg-type]
    ref = (await console.perform(action.Create(spec, *place)).result()).ref
    assert ref is not None
    return ref


async def _stage(console: Console, engine: DockerEngine, home: Path) -> dict[str, SandboxRef]:
    bw, docker = ("bubblewrap", "local"), ("docker", "default")
    found = {
        name: await _made(console, name, bw, "sh", "-c", script, **more) for name, (script, more) in BUBBLEWRAP.items()
    }
    found |= {
        name: await _made(console, name, docker, "sh", "-c", script, **more) for name, (script, more) in DOCKER.items()
    }
    found["bw-denied"] = await _made(console, "bw-denied", bw, "python3", "-c", ASKS, egress=("api.example",))
    engine.docker("run", "-d", "--name", "do-loop", "--restart", "always", IMAGE, "sh", "-c", "exit 7")
    pid = (await console.inspect(found["bw-host-kill"])).pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    os.kill(_status(home, found["bw-lost"])["supervisor"], signal.SIGKILL)
    engine.docker("kill", found["do-killed"].id)
    await _kill(console, found["do-stopped-by-us"])
    for name in ("bw-oom", "bw-failed", "bw-crash", "bw-disk", "bw-host-kill", "do-oom", "do-killed"):
        await until_ended(console, found[name])
    return found


@pytest.fixture
async def console(docker_engine: DockerEngine, home: Path, monkeypatch) -> AsyncIterator[Console]:
    if why := missing("bubblewrap"):
        pytest.skip(why)
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    async with open_console(Config(tui=TuiOptions(stats_interval_s=1.0))) as made:
        yield made
        for one in (await made.list())[0]:
            consent = Consent(yes=True, confirm=one.ref.id)
            if one.quarantine:
                await made.perform(action.Release(one.ref), consent=consent).result()
            await made.perform(action.Remove(one.ref, force=True), consent=consent).result()


def _row(app: ConsoleApp, name: str) -> str:
    return next((line for line in screen_text(app).splitlines() if name in line.split()), "")


async def test_twelve_sandboxes(console: Console, docker_engine: DockerEngine, home: Path) -> None:
    refs = await _stage(console, docker_engine, home)
    app = ConsoleApp(console)
    async with app.run_test(size=(160, 50)) as pilot:
        await until(pilot, lambda: len(app.fleet.sandboxes) >= 12, 60)
        keys = Keys(pilot)

        await keys("which", "z")
        await until(pilot, lambda: all(_row(app, name) for name in WHY), 60)
        rows = {row.key for row in app.main.table.rows}
        assert refs["do-stopped-by-us"] in rows or _row(app, "do-stopped-by-us") == ""
        keys.counted["why"] = 0
        for _ in range(600):
            if not (unlike := [_row(app, name) for name, why in WHY.items() if not re.search(why, _row(app, name))]):
                break
            await pilot.pause(0.05)
        assert not unlike, "\n".join(unlike)

        await keys("the whole of why", "full_stop")
        await until(pilot, lambda: isinstance(app.screen, WhyScreen) and "Evidence" in screen_text(app))
        await pilot.press("escape")

        await keys("which one floods", "z", "number_sign")
        await until(pilot, lambda: app.main.table.rows and app.main.table.rows[0].key == refs["bw-flood"], 90)
        for _ in range(600):  # another row may be first for a moment
            await pilot.press("g")
            if app.main.selected and app.main.selected.ref == refs["bw-flood"]:
                break
        keys.counted["why it floods"] = 0
        assert re.search(r"log \S+/s", _row(app, "bw-flood"))

        await keys("stopped", "Q")
        await until(pilot, lambda: "Quarantine bw-flood?" in screen_text(app))
        await keys("stopped", "y")
        await until(pilot, lambda: app.fleet.sandboxes[refs["bw-flood"]].status is Status.PAUSED, 60)
        keys.counted["kept"] = 0
        await until(pilot, lambda: list((home / "state" / "evidence").glob("*bw-flood*.tar.zst")), 90)
        await until(pilot, lambda: refs["bw-flood"] not in app.fleet.busy, 90)

        await keys("which one is denied", "W")
        await until(pilot, lambda: app.main.table.rows[0].key == refs["bw-denied"], 60)
        await pilot.press("g")
        await until(pilot, lambda: app.main.selected and app.main.selected.ref == refs["bw-denied"])
        await keys("reached", "o")
        await until(pilot, lambda: "exfiltrate.example" in screen_text(app))
        await pilot.press("escape")

        docker_engine.freeze()
        try:
            keys.counted["which engine is dead"] = 0
            await until(pilot, lambda: re.search(r"docker \S*unreachable", screen_text(app)), 90)
            await keys("stopped while an engine is dead", "Q")
            await until(pilot, lambda: "Quarantine bw-denied?" in screen_text(app), 60)
            await keys("stopped while an engine is dead", "y")
            await until(pilot, lambda: app.fleet.sandboxes[refs["bw-denied"]].status is Status.PAUSED, 60)
        finally:
            docker_engine.thaw()
        most = {"which": 3, "why": 0, "reached": 1, "stopped": 2, "kept": 2, "the whole of why": 1, "which one floods": 3,
                "why it floods": 0, "which one is denied": 3, "which engine is dead": 0,
                "stopped while an engine is dead": 2}  # fmt: skip
        assert keys.counted.keys() == most.keys()
        assert all(keys.counted[what] <= most[what] for what in most), keys.counted
    [bundle] = (home / "state" / "evidence").glob("*bw-flood*.tar.zst")
    with bundle.open("rb") as file:
        assert (await asyncio.to_thread(verify_bundle, file)).ok
