"""Recordings in the browser on a phone: the list, a search and the player, by the keys that it has."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.browser.serving import serving
from tests.browser.test_chromium import log_in, rows, sees
from tests.browser.test_visit_records import CONSOLE, home
from tests.support.chromium import connected
from tests.support.require import requires

__all__ = ["home"]

pytestmark = requires("chromium")


def record(folder: Path) -> None:
    """An hour, a line each minute."""
    folder.mkdir(parents=True, mode=0o700)
    header = {"version": 2, "width": 80, "height": 24, "timestamp": int(time.time()) - 3600, "title": "box",
              "sandbox": "bubblewrap/local/ddb414951f6c", "actor": "user:tester", "audit_id": 1}  # fmt: skip
    lines = [header, *([60.0 * at, "o", f"minute {at}\r\n"] for at in range(61))]
    (folder / "one.cast").write_text("".join(json.dumps(line) + "\n" for line in lines))


async def test_a_phone_lists_searches_and_plays(chromium: str, home: Path, tmp_path: Path) -> None:
    record(home / "state/recordings")
    argv = [*CONSOLE, "serve", "--token-file", str(tmp_path / "token")]
    with serving(argv, {"SANDBOX_CONSOLE_HOME": str(home)}) as server:
        async with connected(chromium) as browser:
            viewport = {"width": 390, "height": 844}
            context = await browser.new_context(viewport=viewport, has_touch=True, is_mobile=True)
            phone = await context.new_page()
            await log_in(phone, server.url)
            await sees(phone, "? Help", 60)
            await phone.keyboard.type(":recordings")
            await phone.keyboard.press("Enter")
            await sees(phone, "of all sandboxes")
            await sees(phone, "1h00m")
            await phone.keyboard.type("/minute 59")
            await phone.keyboard.press("Enter")
            await sees(phone, "59:00")
            await phone.keyboard.press("Enter")
            await sees(phone, "59:00 / 1:00:00")
            await sees(phone, "minute 59")
            assert max(len(row.rstrip()) for row in await rows(phone)) <= 50
            await phone.tap("#touch [data-key=Escape]")
            await sees(phone, "1 line with")
            await context.close()
