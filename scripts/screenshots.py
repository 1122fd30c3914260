"""Make screenshots/ from the real app on real sandboxes: bubblewrap, and Docker and microVMs where they can run.

Everything happens in a folder of its own, and is removed at the end. Usage: ``make screenshots``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "screenshots"
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
os.environ["TEXTUAL_ANIMATIONS"] = "none"

from browser_screenshots import browser_view  # noqa: E402
from playwright.async_api import Browser, async_playwright  # noqa: E402
from tests.support.engine import IMAGE, DockerEngine  # noqa: E402
from tests.support.microvm import parts  # noqa: E402
from tests.support.require import missing  # noqa: E402
from textual.pilot import Pilot  # noqa: E402

from sandbox_console.model.action import Create, Exec, Remove  # noqa: E402
from sandbox_console.model.sandbox import SandboxRef  # noqa: E402
from sandbox_console.model.spec import SandboxSpec  # noqa: E402
from sandbox_console.service import Console, open_console  # noqa: E402
from sandbox_console.tui.app import ConsoleApp  # noqa: E402

CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", "--no-first-run"]  # fmt: skip
CRAWL = r"""
i=0
while :; do
  i=$((i + 1))
  printf '\033[2m%s\033[0m fetched page %d of 400 (%d kB)\n' "$(date +%T)" "$i" $((i * 37 % 91))
  [ $((i % 5)) -ne 0 ] || echo "page $i: connection reset, trying again" >&2
  [ $((i % 7)) -ne 0 ] || printf '\033[32mcheckpoint saved after %d pages\033[0m\n' "$i"
  sleep 0.3
done
"""
BUSY = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; sleep 0.2; done"
RULES = """
[alerts.rules.errors]
on = "log"
pattern = "connection reset"
within = "1m"

[alerts.rules.busy]
on = "metric"
metric = "cpu"
above = 5
severity = "critical"
"""
SPECS: dict[str, list[SandboxSpec]] = {
    "bubblewrap": [
        SandboxSpec("agent-crawler", command=("sh", "-c", CRAWL), memory_mib=256, cpus=0.5, labels={"team": "search"}),
        SandboxSpec("agent-notebook", command=("python3", "-q", "-c", "import time; time.sleep(9e5)"), memory_mib=512),
        SandboxSpec("build-4711", command=("sh", "-c", BUSY), cpus=0.3, labels={"team": "ci"}),
        SandboxSpec("tests-flaky", command=("sh", "-c", "echo running; sleep 1; echo 'E: assert 2 == 3' >&2; exit 1")),
    ],
    "docker": [
        SandboxSpec("api-staging", IMAGE, ("sh", "-c", "while :; do echo GET /health 200; sleep 1; done"), pids=64),
        SandboxSpec("leaky-worker", IMAGE, ("sh", "-c", "sleep 2; x=$(head -c 300m /dev/zero | tr '\\0' x); echo $x"),
                    memory_mib=64),
    ],
}  # fmt: skip


@contextlib.contextmanager
def engine(folder: Path) -> Iterator[bool]:
    """A private dockerd, where one can run."""
    if missing("docker"):
        yield False
        return
    found = DockerEngine(folder)
    found.start()
    os.environ["DOCKER_HOST"] = found.url
    try:
        found.build_images()
        yield True
    finally:
        found.stop()


@contextlib.asynccontextmanager
async def fleet(backends: list[str]) -> AsyncIterator[Console]:
    """A console over real sandboxes, which are removed at the end."""
    made: list[SandboxRef] = []
    async with open_console() as console:
        try:
            for name in backends:
                for spec in SPECS[name]:
                    host = "local" if name == "bubblewrap" else "default"
                    result = await console.perform(Create(spec, name, host)).result()
                    assert result.ref is not None
                    made.append(result.ref)
            await console.perform(Exec(made[0], ("sh", "-c", "id; exit 3"))).result()
            await asyncio.sleep(5)
            yield console
        finally:
            for ref in made:
                await console.perform(Remove(ref, force=True)).result()


async def picture(browser: Browser, svg: str, name: str) -> None:
    """An SVG of the app as a PNG, with this machine's own monospace font."""
    svg = re.sub(r"@font-face\s*{[^}]*}", "", svg).replace("Fira Code", "DejaVu Sans Mono")
    width, height = map(float, re.search(r'viewBox="0 0 ([0-9.]+) ([0-9.]+)"', svg).groups())  # type: ignore[union-attr]
    page = await browser.new_page(viewport={"width": int(width) + 1, "height": int(height) + 1})
    await page.set_content(f"<body style='margin:0'>{svg}</body>")
    await page.screenshot(path=OUT / f"{name}.png")
    await page.close()


async def shoot(console: Console, browser: Browser, name: str, size: tuple[int, int],
                act: Callable[[Pilot[None]], Awaitable[None]]) -> None:  # fmt: skip
    """One picture: open the app, act, take it."""
    app = ConsoleApp(console)
    async with app.run_test(size=size) as pilot:
        await settle(pilot, 4.0)
        await act(pilot)
        svg = app.export_screenshot(title="sandbox-console")
    await picture(browser, svg, name)
    print(f"screenshots/{name}.png")


async def settle(pilot: Pilot[None], seconds: float) -> None:
    """Let what is live come in."""
    await asyncio.sleep(seconds)
    await pilot.pause()


async def choose(pilot: Pilot[None], name: str) -> None:
    """Put the cursor on a sandbox by filtering to it."""
    await pilot.press("slash", *name, "enter")
    await settle(pilot, 2.0)


async def main_screen(pilot: Pilot[None]) -> None:
    await choose(pilot, "crawler")
    await pilot.press("escape")
    await settle(pilot, 2.0)


async def shell(pilot: Pilot[None]) -> None:
    await choose(pilot, "notebook")
    await pilot.press("escape", "s")
    await settle(pilot, 2.0)
    for text in ("python3 -c 'import sys; print(sys.version)'\n", "top -b -n 1 | head -12\n"):
        await pilot.press(*("enter" if key == "\n" else key for key in text))
        await settle(pilot, 1.5)


async def spec(pilot: Pilot[None]) -> None:
    await choose(pilot, "crawler")
    await pilot.press("escape", "y")
    await settle(pilot, 1.0)


async def edit(pilot: Pilot[None]) -> None:
    await choose(pilot, "crawler")
    await pilot.press("escape", "e")
    await settle(pilot, 1.0)
    for field, value in (("memory_mib", "512M"), ("egress", "acme.org"), ("labels", "team=search tier=2")):
        pilot.app.screen.query_one(f"#field-{field}").value = value  # type: ignore[attr-defined]
    await settle(pilot, 2.0)


async def audit(pilot: Pilot[None]) -> None:
    await choose(pilot, "crawler")
    await pilot.press("escape", "9")
    await settle(pilot, 1.0)


async def why(pilot: Pilot[None]) -> None:
    await choose(pilot, "flaky")
    await pilot.press("full_stop")
    await settle(pilot, 2.0)


async def timeline(pilot: Pilot[None]) -> None:
    await settle(pilot, 2.0)
    await pilot.press("asterisk", "semicolon")
    await settle(pilot, 3.0)


async def alerts(pilot: Pilot[None]) -> None:
    await settle(pilot, 6.0)
    await pilot.press("exclamation_mark")
    await settle(pilot, 2.0)


INCIDENT = (("why", (120, 30), why), ("timeline", (120, 30), timeline), ("alerts", (120, 24), alerts))


async def make(backends: list[str]) -> None:
    """All pictures."""
    async with fleet(backends) as console, async_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = await playwright.chromium.launch(executable_path=chromium, args=CHROMIUM)
        for name, size, act in (
            ("main", (120, 36), main_screen), ("shell", (120, 36), shell), ("spec", (120, 36), spec),
            ("edit", (100, 36), edit), ("audit", (120, 36), audit), ("small", (80, 24), main_screen),
            *INCIDENT,
        ):  # fmt: skip
            await shoot(console, browser, name, size, act)
        await browser_view(browser, OUT)
        await browser.close()


def microvms() -> None:
    """MicroVMs, containers and namespaces in one list, off the test that drives the emulated machine from outside."""
    if lacking := parts.missing():
        print(f"no screenshots/microvms.png: not installed: {', '.join(lacking)} (scripts/setup microvm)")
        return
    environment = os.environ | {"REQUIRE": "machine,docker,chromium", "PICTURE": str(OUT / "microvms.png")}
    test = "tests/microsandbox/test_outside.py"
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-k", "browser", test], env=environment, check=False)
    print("no screenshots/microvms.png: the emulated machine failed" if done.returncode else "screenshots/microvms.png")


def write_rules(home: Path) -> None:
    """Write a configuration with rules of alerts, so that there is something in their list."""
    home.mkdir(mode=0o700, parents=True)
    (home / "config.toml").write_text(RULES)


def main() -> None:
    """Set up, shoot, clean up."""
    OUT.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="sc-shots-", dir="/tmp"))
    os.environ["SANDBOX_CONSOLE_HOME"] = str(folder / "home")
    write_rules(folder / "home")
    try:
        with engine(folder / "docker") as docker:
            asyncio.run(make(["bubblewrap", "docker"] if docker else ["bubblewrap"]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    microvms()
    if shutil.which("optipng"):
        subprocess.run(["optipng", "-quiet", *OUT.glob("*.png")], check=True)


if __name__ == "__main__":
    main()
