"""Files between a browser and a real sandbox: what is saved is downloaded, what is picked or dropped is uploaded."""

from __future__ import annotations

import asyncio
import re
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser.serving import Served, client, eventually, raw, read_until, served_with_token, serving
from tests.browser.test_chromium import page, rows, sees
from tests.browser.test_real_app import CONSOLE, cli, home
from tests.support.require import requires

__all__ = ["home", "page"]

TYPING = "document.activeElement.classList.contains('xterm-helper-textarea')"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The server's working directory, which stays empty."""
    (made := tmp_path / "cwd").mkdir()
    return made


@pytest.fixture
def server(home: Path, folder: Path) -> Iterator[Served]:
    with serving([*CONSOLE, "serve"], {"SANDBOX_CONSOLE_HOME": str(home)}, folder) as found:
        yield found
    assert list(folder.iterdir()) == []
    assert list((home / "state").glob("download-*")) == []


async def downloaded(page, action, target: Path) -> tuple[str, Path]:
    async with page.expect_download() as coming:
        await action()
    download = await coming.value
    await download.save_as(target)
    return download.suggested_filename, target


@requires("chromium")
@requires("bubblewrap")
async def test_a_log_is_saved_in_the_browser(page, server: Served, tmp_path: Path) -> None:
    await page.goto(server.link)
    await sees(page, "hello from inside")
    await page.keyboard.press("l")
    await asyncio.sleep(0.5)
    name, file = await downloaded(page, lambda: page.keyboard.press("Control+s"), tmp_path / "log")
    assert name.startswith("seen-in-a-browser-")
    assert "hello from inside" in file.read_text()
    await sees(page, "downloaded")


@requires("chromium")
@requires("bubblewrap")
async def test_files_go_both_ways_with_the_browser(page, server: Served, home: Path, tmp_path: Path) -> None:
    big = tmp_path / "big.bin"
    big.write_bytes(bytes(range(256)) * 20_000)  # 5 MB: many chunks
    await page.goto(server.link)
    await sees(page, "seen-in-a-browser")
    await page.click("#upload")
    await page.set_input_files("#files", str(big))
    await sees(page, "Upload into seen-in-a-browser")
    await page.wait_for_function(TYPING)
    assert await page.is_hidden("#uploading")
    await page.keyboard.press("Enter")
    await sees(page, "big.bin is in /tmp")
    assert cli(home, "exec", "seen-in-a-browser", "--", "wc", "-c", "/tmp/big.bin").split()[0] == str(20_000 * 256)
    assert eventually(lambda: not list((home / "state" / "serve" / "uploads").glob("*/*")))
    cli(home, "exec", "seen-in-a-browser", "--", "sh", "-c", "mkdir -p /tmp/d/e; echo deep > /tmp/d/e/f")
    await page.keyboard.press("6")
    await sees(page, "download")
    await page.keyboard.press("P")
    await sees(page, "Go to")
    await page.keyboard.press("End")
    await page.keyboard.type("tmp")
    await page.keyboard.press("Enter")
    async with asyncio.timeout(15):
        while not any(re.search(r"big\.bin\s+\S*5", row) for row in await rows(page)):
            await asyncio.sleep(0.1)
    await page.keyboard.press("Home")
    name, file = await downloaded(page, lambda: page.keyboard.press("Shift+D"), tmp_path / "got.tar")
    assert name == "d.tar"
    with tarfile.open(file) as archive:
        assert archive.extractfile("d/e/f").read() == b"deep\n"
    await page.keyboard.press("End")
    name, file = await downloaded(page, lambda: page.keyboard.press("Shift+D"), tmp_path / "got.bin")
    assert (name, file.read_bytes()) == ("big.bin", big.read_bytes())


@requires("chromium")
@requires("bubblewrap")
async def test_a_file_is_dropped_on_the_page(page, server: Served, home: Path) -> None:
    await page.goto(server.link)
    await sees(page, "seen-in-a-browser")
    await page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["dropped here"], "über ../x y.txt"));
          document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }"""
    )
    await sees(page, "Upload into")
    await page.wait_for_function(TYPING)
    await page.keyboard.press("Enter")
    await sees(page, "x y.txt is in /tmp")
    assert cli(home, "exec", "seen-in-a-browser", "--", "cat", "/tmp/x y.txt") == "dropped here"


async def test_what_is_uploaded_needs_the_page_and_stays_in_a_private_folder(tmp_path: Path) -> None:
    with served_with_token(raw("echo"), tmp_path) as server:
        async with client(server) as it, client(server) as other:
            assert await it.log_in() == await other.log_in() == 200
            async with it.socket(await it.ticket()) as link:
                session = (await link.receive_json())[1]
                await read_until(link, b"raw ready")
                good = {"X_Session": session, "X_File_Name": "..%2F..%2Fpasswd"}
                for headers in ({"X_Session": "", "X_File_Name": "x"}, good | {"X_File_Name": ".."},
                                good | {"X_File_Name": "a%00b"}, good | {"X_File_Name": "x" * 300}):  # fmt: skip
                    assert (await it.post("/upload", {}, **headers)).status in (400, 404)
                assert (await it.post("/upload", {}, X_Sandbox_Console="", **good)).status == 401
                assert (await it.post("/upload", {}, leave_out="Origin", **good)).status == 403
                assert (await other.post("/upload", {}, **good)).status == 404
                assert (await it.post("/upload", {"a": 1}, **good)).status == 200
                told = await read_until(link, b"passwd")
                path = Path(told.split(b'"path": "')[1].split(b'"')[0].decode())
                assert path.name == "passwd"
                assert path.read_text() == '{"a": 1}'
                assert path.parent.parent.parent.stat().st_mode & 0o777 == 0o700
            assert (await it.post("/logout", {})).status == 200
        assert not path.parent.exists()


async def test_what_a_killed_server_was_sent_is_removed_by_the_next_one_that_is_alone(tmp_path: Path) -> None:
    uploads = tmp_path / "home" / "state" / "serve" / "uploads"
    environment = {"SANDBOX_CONSOLE_HOME": str(tmp_path / "home")}
    with served_with_token(raw("echo"), tmp_path, environment=environment) as server:
        async with client(server) as it:
            assert await it.log_in() == 200
            async with it.socket(await it.ticket()) as link:
                session = (await link.receive_json())[1]
                await read_until(link, b"raw ready")
                assert (await it.post("/upload", {"a": 1}, X_Session=session, X_File_Name="left")).status == 200
                with served_with_token(raw("echo"), tmp_path, environment=environment):
                    assert list(uploads.rglob("left")), "another server runs, and it may be that one's"
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
    assert list(uploads.rglob("left"))
    with served_with_token(raw("echo"), tmp_path, environment=environment):
        assert not uploads.exists()
