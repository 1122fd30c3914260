"""The Files tab: where the cursor is in each folder, and a large file of which a page is read."""

from __future__ import annotations

import asyncio

from tests.tui.app.scene import NOW, fleet, screen_text, until

from sandbox_console.model.audit import AuditQuery
from sandbox_console.service import find_paths
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within
from sandbox_console.tui.dialogs.text_screen import TextScreen
from sandbox_console.tui.files.files_tab import FilesPane
from sandbox_console.tui.widgets.table.table import FleetTable

AGENT = "aaaaaaaaaaaa"


async def test_the_cursor_begins_at_the_top_of_a_folder_and_comes_back_to_the_one_that_was_left(run_app):
    files = {f"/{name}/{inner}": b"x" for name in ("a", "b", "c") for inner in ("1", "2", "b")}
    fake = FakeBackend(fleet(), within=Within(files={AGENT: files}), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):

        async def there(path, name):
            await until(pilot, lambda: f" {path}   D download" in screen_text(app) and table.cursor_key == name)

        await pilot.press("6")
        await until(pilot, lambda: app.main.query("#files-table"))
        table = app.main.query_one("#files-table", FleetTable)
        await there("/", "a")
        await until(pilot, lambda: app.focused is table)
        await pilot.press("j")
        for path, key in (("/b", "1"), ("/", "b")):
            await pilot.press("enter" if path == "/b" else "backspace")
            await there(path, key)


async def test_to_look_at_a_file_no_more_of_it_is_read_than_is_shown(run_app, monkeypatch):
    fake = FakeBackend(fleet(), within=Within(files={AGENT: {"/big": b"x" * (4 << 20)}}), clock=lambda: NOW)
    monkeypatch.setattr("sandbox_console.tui.files.files_tab.VIEWED", 1024)
    async with run_app(fake) as (app, pilot):
        await pilot.press("6")
        await until(pilot, lambda: "big" in screen_text(app) and app.focused and app.focused.id == "files-table")
        app.main.query_one("#files-table", FleetTable).move_to("big")
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        [entry] = await app.service.history(AuditQuery(limit=1))
        assert str(entry.outcome) == "ok"
        assert entry.end.body["bytes"] < 1 << 20


async def test_a_long_file_is_read_to_its_end_by_keys(run_app):
    text = "".join(f"row {at} [@click=app.quit]x[/]\x1b[31m\n" for at in range(5000))
    fake = FakeBackend(fleet(), within=Within(files={AGENT: {"/text": text.encode()}}), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await pilot.press("6")
        await until(pilot, lambda: "text" in screen_text(app) and app.focused and app.focused.id == "files-table")
        app.main.query_one("#files-table", FleetTable).move_to("text")
        await pilot.press("enter")
        await until(pilot, lambda: "row 0 [@click=app.quit]x[/]␛[31m" in screen_text(app))
        await pilot.press("j")
        await until(pilot, lambda: "row 0 " not in screen_text(app) and "row 1 " in screen_text(app))
        await pilot.press("G")
        await until(pilot, lambda: "row 4999 " in screen_text(app))
        await pilot.press("q")
        await until(pilot, lambda: app.screen is app.main)


async def test_nothing_of_a_folder_that_was_left_is_downloaded_while_the_new_one_is_asked_for(run_app, monkeypatch):
    files = {f"/{name}/secret": name.encode() for name in ("old", "new")}
    fake = FakeBackend(fleet(), within=Within(files={AGENT: files}), clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        await pilot.press("6")
        await until(pilot, lambda: "old" in screen_text(app) and app.focused and app.focused.id == "files-table")
        pane, line = app.main.query_one(FilesPane), app.main.query_one("#files-input")
        answer, list_dir = asyncio.Event(), app.service.inside.list_dir

        async def slow(ref, path):
            await answer.wait()
            return await list_dir(ref, path)

        monkeypatch.setattr(app.service.inside, "list_dir", slow)
        await pilot.press("P", *"new", "enter")
        await until(pilot, lambda: "Asking" in screen_text(app))
        await pilot.press("D")
        await until(pilot, lambda: "/new is not open yet" in screen_text(app))
        assert not line.has_class("-asking")
        answer.set()
        await until(pilot, lambda: pane.path == "/new")
        await pilot.press("D")
        await until(pilot, lambda: line.has_class("-asking"))
        pane._go("/old")  # an answer that comes while the line is open changes nothing of what it is about
        await until(pilot, lambda: pane.path == "/old")
        line.value = str(find_paths().state / "got")
        await pilot.press("enter")
        await until(pilot, lambda: "/new/secret is at" in screen_text(app))
        assert (find_paths().state / "got").read_bytes() == b"new"
