"""One Chromium for all tests of a worker: a start costs 2.4 s of CPU, and contexts keep the tests apart."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from playwright.async_api import Browser, async_playwright

ARGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
]


@contextlib.contextmanager
def running_chromium(profile: Path) -> Iterator[str]:
    """A Chromium whose profile lies in an empty folder; yields the address of its DevTools protocol."""
    found = shutil.which("chromium")
    assert found, "no chromium on PATH"
    words = [found, *ARGS, "--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"]
    with (profile / "chromium.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    try:
        yield f"http://127.0.0.1:{_port(process, profile)}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _port(process: subprocess.Popen[bytes], profile: Path) -> int:
    port = profile / "DevToolsActivePort"
    until = time.monotonic() + 60
    while not (port.exists() and port.read_text().count("\n")):
        assert process.poll() is None, (profile / "chromium.log").read_text(errors="replace")
        assert time.monotonic() < until, "Chromium did not open its DevTools port within 60 s"
        time.sleep(0.05)
    return int(port.read_text().splitlines()[0])


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[Browser]:
    """The browser at `address`; the contexts that were made of it are closed in the end, it goes on."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(address)
        before = set(browser.contexts)
        try:
            yield browser
        finally:
            for context in set(browser.contexts) - before:
                await context.close()
