"""Drift in the app: the mark, the filter, the Spec tab, and the two keys that end it."""

from __future__ import annotations

from msgspec import structs
from tests.tui.app.scene import screen_text, until

from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.event import Changed
from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.dialogs.action_menu import MenuScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen


async def tell(app, fake) -> Sandbox:
    """Another tool changes a limit and a network of a running sandbox of ours; the backend tells of it by an event."""
    one = next(one for one in fake.sandboxes.values() if one.spec is not None and one.status == "running")
    spec = structs.replace(one.spec, memory_mib=64)
    found = {"name": one.name, "memory_mib": 4096, "network": "also on network lan\x1b[2J"}
    changed = structs.replace(one, spec=spec, found=found)
    fake.sandboxes[one.ref.id] = changed
    await fake.tell(Changed(changed))
    return changed


def shown(app) -> list[str]:
    return [app.fleet.sandboxes[row.key].name for row in app.main.table.rows]


async def filtered(pilot, words: str) -> None:
    await pilot.press("slash")
    for char in words:
        await pilot.press({">": "greater_than_sign", "=": "equals_sign"}.get(char, char))
    await pilot.press("enter")


async def test_a_mark_a_filter_and_the_spec_tab_say_what_differs(run_app, fake):
    async with run_app() as (app, pilot):
        assert "≠" not in screen_text(app)
        one = await tell(app, fake)
        await until(pilot, lambda: f"{one.name} ≠" in screen_text(app))
        await filtered(pilot, "drift>0")
        await until(pilot, lambda: shown(app) == [one.name])
        await pilot.press("y")
        await until(pilot, lambda: "≠ memory_mib" in screen_text(app))
        text = screen_text(app)
        assert "asked 64M, found 4G" in text, text
        assert "outside the console" in text
        assert "network lan␛[2J" in text


async def test_one_key_makes_it_as_asked_again(run_app, fake):
    async with run_app() as (app, pilot):
        one = await tell(app, fake)
        await until(pilot, lambda: "≠" in screen_text(app))
        app.main.table.move_to(one.ref)
        await pilot.press("less_than_sign")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        text = screen_text(app)
        assert "Re-apply" in text
        assert "≠ memory_mib" in text
        assert "drift --reapply" in text
        await pilot.press("y")
        await until(pilot, lambda: fake.sandboxes[one.ref.id].found.get("memory_mib") == 64)
        await until(pilot, lambda: "≠" not in screen_text(app))
        [entry] = await app.main.service.history(AuditQuery(limit=5))
        assert (entry.attempt.action, entry.outcome) == ("update", "ok")


async def test_another_key_takes_it_for_what_was_asked(run_app, fake):
    async with run_app() as (app, pilot):
        one = await tell(app, fake)
        await until(pilot, lambda: "≠" in screen_text(app))
        app.main.table.move_to(one.ref)
        await pilot.press("greater_than_sign")
        await until(pilot, lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: fake.sandboxes[one.ref.id].spec.memory_mib == 4096)
        assert fake.sandboxes[one.ref.id].found["network"], "a network is never adopted"


async def test_menus_offer_it_only_where_something_differs(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, MenuScreen))
        assert "Re-apply" not in screen_text(app)
        await pilot.press("escape")
        one = await tell(app, fake)
        await until(pilot, lambda: "≠" in screen_text(app))
        app.main.table.move_to(one.ref)
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, MenuScreen))
        assert "Re-apply" in screen_text(app)
        await pilot.press("escape")
        other = next(box for box in fake.sandboxes.values() if not box.found)
        app.main.table.move_to(other.ref)
        await pilot.press("less_than_sign")
        await until(pilot, lambda: "nothing differs" in screen_text(app))
