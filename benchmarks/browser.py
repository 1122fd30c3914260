"""The console in a browser beside stock textual-serve with a trivial app: first paint, a key until it is painted, PSS.

``python benchmarks/browser.py [ROUNDS]``: in real Chromium by CDP, in rounds that alternate. The console runs on three
real sandboxes of bubblewrap, on its list and in a shell; textual-serve runs an app with one counter. A key counts from
its keydown until the second animation frame after the first bytes that come back for it. As PSS, the processes that
the server starts for a session are added up. Goals: 1.5 x, 1 x and 1.5 x of textual-serve.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from playwright.async_api import Browser, Page, async_playwright

KEYS = 40
TOKEN = "a-token-for-a-measurement"
SERVER = [sys.executable, "-P", "-m", "sandbox_console"]
BARE = """
from textual.app import App
from textual.widgets import Static
class Bare(App):
    count = 0
    def compose(self):
        yield Static("count 0")
    def on_key(self):
        self.count += 1
        self.query_one(Static).update(f"count {self.count}")
Bare().run()
"""
STOCK = "from textual_serve.server import Server; import sys; Server(sys.argv[1], port=int(sys.argv[2])).serve()"
HOOK = """
window.told = { first: 0, key: 0, painted: [] };
const frames = done => requestAnimationFrame(() => requestAnimationFrame(done));
addEventListener('keydown', () => { told.key = performance.now(); }, true);
window.WebSocket = class extends WebSocket {
  constructor(...words) {
    super(...words);
    this.addEventListener('message', ({ data }) => {
      if (typeof data === 'string') return;
      if (!told.first) frames(now => { told.first ||= performance.now(); });
      if (told.key) { const from = told.key; told.key = 0; frames(() => told.painted.push(performance.now() - from)); }
    });
  }
};
"""


@contextmanager
def running(argv: list[str], home: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A server, until the block ends."""
    environment = os.environ | {"SANDBOX_CONSOLE_HOME": home} | more
    process = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)


def cli(home: str, *words: str) -> None:
    """A command of the console."""
    subprocess.run([*SERVER, *words], env=os.environ | {"SANDBOX_CONSOLE_HOME": home}, check=True, capture_output=True)


def pss(server: int) -> float:
    """MiB of the processes below a server."""
    found, below = 0.0, {server}
    stats = {int(path.parent.name): path.read_text() for path in Path("/proc").glob("[0-9]*/stat")}
    parents = {pid: int(text.rpartition(")")[2].split()[1]) for pid, text in stats.items()}
    while more := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= more
    for pid in below - {server}:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        found += int(re.search(r"^Pss: +(\d+)", rollup, re.MULTILINE)[1]) / 1024  # type: ignore[index]
    return found


async def opened(browser: Browser, url: str) -> tuple[Page, float]:
    """A page in a context of its own, and the milliseconds until its first paint."""
    context = await browser.new_context(viewport={"width": 1200, "height": 800})
    page = await context.new_page()
    await page.add_init_script(HOOK)
    await page.goto(url)
    await page.wait_for_function("() => location.hash === '' && window.told?.first > 0", timeout=60_000)
    first = await page.evaluate("told.first")
    await asyncio.sleep(1.5)  # what follows the first paint is not a key's
    return page, first


async def keys(page: Page, pressed: str) -> list[float]:
    """The milliseconds of each key until it is painted."""
    await page.evaluate("told.painted = []")
    for at in range(KEYS):
        await page.keyboard.press(pressed[at % len(pressed)])
        await page.wait_for_function(f"() => told.painted.length > {at}", timeout=20_000)
        await asyncio.sleep(0.03)
    return list(await page.evaluate("told.painted"))


async def sees(page: Page, text: str) -> None:
    """Wait until the console shows a text."""
    await page.wait_for_function(f"() => window.sandboxConsole?.rows().join().includes({json.dumps(text)})")


async def measure(rounds: int, browser: Browser, ours: str, our_server: int, stock: str, stock_server: int) -> None:
    """Print the table."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        page, first = await opened(browser, stock)
        found.setdefault("first paint, textual-serve", []).append(first)
        await page.mouse.click(600, 600)  # its page takes keys only then
        found.setdefault("key, textual-serve", []).extend(await keys(page, "ab"))
        found.setdefault("PSS, textual-serve", []).append(pss(stock_server))
        await page.context.close()
        page, first = await opened(browser, f"{ours}/#token={TOKEN}")
        await sees(page, "box-3")
        found.setdefault("first paint, console", []).append(first)
        found.setdefault("key on the list, console", []).extend(await keys(page, "jk"))
        found.setdefault("PSS, console", []).append(pss(our_server))
        await page.keyboard.press("s")
        await sees(page, "$")
        await asyncio.sleep(2)
        found.setdefault("key in a shell, console", []).extend(await keys(page, "ab"))
        await page.context.close()
        await asyncio.sleep(1)
    print(f"{'what':30} {'median':>8} {'p95':>8}   load {os.getloadavg()[0]:.1f}, {rounds} rounds")
    for name, values in sorted(found.items()):
        p95 = statistics.quantiles(values, n=20)[-1] if len(values) > 1 else values[0]
        unit = "MiB" if name.startswith("PSS") else "ms"
        print(f"{name:30} {statistics.median(values):8.1f} {p95:8.1f} {unit}")


async def main(rounds: int) -> None:
    """Start both servers and Chromium, and measure."""
    chromium = shutil.which("chromium") or sys.exit("no chromium on PATH")
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        (Path(home) / "config.toml").write_text('backend = "bubblewrap"\n')
        (token := Path(home) / "token").write_text(TOKEN)
        token.chmod(0o600)
        for at in range(1, 4):
            cli(home, "create", f"box-{at}", "--image", "host", "--", "sleep", "1000")
        stack.callback(cli, home, "rm", "--force", *(f"box-{at}" for at in range(1, 4)))
        serve = [*SERVER, "--backend", "bubblewrap", "serve", "--token-file", str(token), "--keep", "1s"]
        ours = stack.enter_context(running(serve, home))
        url = str(ours.stderr and ours.stderr.readline()).split("/ ")[0].split("/#")[0].strip()
        (bare := Path(home) / "bare.py").write_text(BARE)
        port = 20_000 + os.getpid() % 20_000
        stock = stack.enter_context(running([sys.executable, "-c", STOCK, f"{sys.executable} {bare}", str(port)], home))
        time.sleep(2)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            await measure(rounds, browser, url, ours.pid, f"http://localhost:{port}/", stock.pid)
            await browser.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
