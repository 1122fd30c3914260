"""The list and the detail share the screen: neither is left without rows."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import until
from textual.widgets import ContentSwitcher


@pytest.mark.parametrize("size", [(100, 30), (120, 40)])
async def test_the_detail_keeps_rows_however_much_the_list_is_given(run_app, size):
    async with run_app(size=size) as (app, pilot):
        room = app.main.detail.query_one(ContentSwitcher)
        await until(pilot, lambda: room.size.height >= 7)
        await pilot.press(*["minus"] * 14)
        await pilot.pause()
        least = room.size.height
        assert least >= 7, "a shell in it can be read"
        await pilot.press("plus")
        await until(pilot, lambda: room.size.height > least)


async def test_at_80x24_the_detail_has_the_page_after_the_list_was_given_all(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press(*["minus"] * 14, "enter")
        room = app.main.detail.query_one(ContentSwitcher)
        await until(pilot, lambda: room.size.height >= 16)
