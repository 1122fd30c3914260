"""Who comes back to a page is told what was missed, and a new session after a restart which shells were kept."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from tests.browser.serving import serving
from tests.browser.test_chromium import page, rows, sees
from tests.browser.test_real_app import CONSOLE, home
from tests.support.require import requires

__all__ = ["home", "page"]

pytestmark = [requires("chromium"), requires("bubblewrap")]


def changed(home: Path, more: str) -> None:
    """Change the configuration as an editor does: a new file in place of the old one."""
    path = home / "config.toml"
    part = path.with_suffix(".part")
    part.write_text(path.read_text() + more)
    part.replace(path)


async def message(page, title: str) -> str:
    """The message with this title, once it is shown, without its line breaks."""
    await sees(page, title)
    shown = [row.strip("▌▐▎ ") for row in await rows(page)]
    at = next(at for at, row in enumerate(shown) if title in row)
    return " ".join(" ".join(shown[at : at + 4]).split())


async def test_on_return_one_is_told_how_long_nobody_looked_and_how_many_messages_came(page, home: Path) -> None:
    with serving([*CONSOLE, "serve"], {"SANDBOX_CONSOLE_HOME": str(home)}) as server:
        await page.goto(server.link)
        await sees(page, "seen-in-a-browser")
        for count, words in ((2, "2 messages meanwhile. :messages shows them."), (0, "No message came meanwhile.")):
            began = time.monotonic()
            await page.goto("about:blank")
            for at in range(2):
                if count:
                    changed(home, f'[secrets.NUMBER_{at}]\nfrom = "env:HOME"\n')
                await asyncio.sleep(6)  # it is read again, and the app says so
            least = int(time.monotonic() - began) - 1
            await page.goto(server.url)
            told = await message(page, "not shown for")
            assert words in told
            [away] = map(int, re.findall(r"not shown for (\d+)s", told))
            assert least <= away <= time.monotonic() - began


async def test_after_a_restart_of_the_server_a_new_session_names_the_kept_shells(page, home: Path) -> None:
    changed(home, "[shell]\nkeep = true\n")
    environment = {"SANDBOX_CONSOLE_HOME": str(home)}
    with serving([*CONSOLE, "serve"], environment) as server:
        await page.goto(server.link)
        await sees(page, "seen-in-a-browser")
        await page.keyboard.press("s")
        await sees(page, "Ctrl+] leaves it open")
        await page.keyboard.type("x=kept$((40+2)); echo =$x=\n", delay=20)
        await sees(page, "=kept42=")
        server.stop()
    with serving([*CONSOLE, "serve"], environment) as server:
        await page.goto(server.link)
        told = await message(page, "kept shells")
        assert "in seen-in-a-browser. Opening a shell in its sandbox goes on with it." in told
        await page.keyboard.press("s")
        await sees(page, "=kept42=")
        await page.keyboard.type("echo +$x+\n", delay=20)
        await sees(page, "+kept42+")
