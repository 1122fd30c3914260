"""What is served is what was vendored, and nothing of it comes from elsewhere."""

import hashlib
import re
from pathlib import Path

import pytest

from sandbox_console.web import pages
from sandbox_console.web.textual_driver import BrowserDriver

VENDORED = {
    "vendor/addon-fit.mjs": "aa22c5f28e4d64118ac0e7d60276b3384188e59dd104c96e43760d6e2cedd771",
    "vendor/addon-unicode11.mjs": "3d33542f6b5690e38df686d30d642ded9f94e4587468d9548aa43aaebebdb21d",
    "vendor/addon-webgl.mjs": "434111ccc15a9a09c5c6073cd43f9c74c9129c2b4384db3ad6057077b9ff9f69",
    "vendor/xterm.css": "854a7c0fb70e8b1a083c16797ab827299fb18744f5ad34f227b48337e33293c6",
    "vendor/xterm.mjs": "3fd3d0046d2604ea5860235e2f96625a2fab158dcf3d4cfb0f7c1655559a5d9a",
}


def test_vendored_files_are_the_ones_that_were_read() -> None:
    table = pages.read_pages()
    assert {name: hashlib.sha256(table[name].body).hexdigest() for name in VENDORED} == VENDORED
    assert {name for name in table if name.startswith("vendor/")} == set(VENDORED)


def test_our_pages_name_no_other_host() -> None:
    for name, page in pages.read_pages().items():
        if name not in VENDORED and page.content_type.startswith("text/"):
            assert not re.findall(rb"(?:src|href|url\(|import)[^\n]*?//[a-z]", page.body), name
            assert b"innerHTML" not in page.body
            assert b"style=" not in page.body


def test_the_icon_is_the_logo_of_the_page() -> None:
    icon = Path(__file__).parents[2] / "assets" / "icon.svg"
    assert icon.read_bytes() == pages.read_pages()["logo.svg"].body


@pytest.mark.parametrize(
    "text", ["\x1b]52;c;ZXZpbA==\x07", "\x9d52;c;ZXZpbA==\x9c", "\x1b]52;p;?\x1b\\", "\x1b]52;c;ZXZpbA=="]
)
def test_the_driver_drops_a_copy_inside_other_output(text: str) -> None:
    sent: list[bytes] = []
    driver = BrowserDriver.__new__(BrowserDriver)
    driver._write = sent.append
    driver.write(f"before{text}")
    assert sent == [b"D\x00\x00\x00\x06before"]


def test_a_frame_is_one_message_as_the_driver_asks_for_no_synchronized_output() -> None:
    sent: list[bytes] = []
    driver = BrowserDriver.__new__(BrowserDriver)
    driver._write = sent.append
    driver._request_terminal_sync_mode_support()
    assert not sent
