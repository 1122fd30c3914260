"""The selected sandbox from near: limits that are drawn, two that are compared."""

from __future__ import annotations

from msgspec import structs
from tests.tui.app.scene import NOW, ref, sandbox, screen_text, until

from sandbox_console.model.sandbox import Exit, Fact, Stats, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.tui.detail.stats_tab import limits_of


def test_limits_are_those_that_hold_whoever_set_them():
    theirs = sandbox(
        "x", "theirs", managed=False, effective=(Fact("cpus", "0.5"), Fact("memory_mib", "64"), Fact("pids", "50"))
    )
    assert limits_of(theirs, None) == {"cpu": 50.0, "memory": 64.0 * (1 << 20), "pids": 50.0}
    assert limits_of(theirs, Stats(NOW, memory_limit=1 << 20))["memory"] == 1 << 20, "what is measured is what holds"
    spec = SandboxSpec("x", cpus=2.0, pids=9)
    loose = (Fact("cpus", "2", enforced=False), Fact("pids", "unlimited"), Fact("memory_mib", "unlimited"))
    assert limits_of(sandbox("x", "x", spec=spec, effective=loose), None) == {"pids": 9.0}
    assert limits_of(sandbox("x", "x", spec=spec), None) == {"cpu": 200.0, "pids": 9.0}


async def test_the_one_that_was_chosen_first_is_compared_as_it_is_now(run_app, fake):
    async with run_app() as (app, pilot):
        await pilot.press("equals_sign")
        one = fake.sandboxes["aaaaaaaaaaaa"]
        await fake._put(structs.replace(one, status=Status.EXITED, exit=Exit(42)))
        await until(pilot, lambda: "exit 42" in screen_text(app))
        app.main.table.move_to(ref("bbbbbbbbbbbb"))
        await pilot.press("equals_sign")
        await until(pilot, lambda: "Differs" in screen_text(app))
        assert "exit 42" in screen_text(app).split("Differs")[1].split("The same")[0]


async def test_what_the_list_does_not_know_is_asked_for_before_two_are_compared(run_app, fake, monkeypatch):
    inspect = fake.inspect

    async def whole(ref):
        return structs.replace(await inspect(ref), effective=(Fact("pids", "256"),))

    async with run_app() as (app, pilot):
        monkeypatch.setattr(fake, "inspect", whole)
        await pilot.press("space", "j", "space", "equals_sign")
        await until(pilot, lambda: "Differs" in screen_text(app))
        await pilot.press("G")
        await until(pilot, lambda: "→ pids        256" in screen_text(app))


async def test_inspect_stays_where_it_is_read_when_its_sandbox_changes(run_app, fake):
    many = {f"label{at:03}": "x" for at in range(99)}
    agent = structs.replace(fake.sandboxes["aaaaaaaaaaaa"], labels=many)
    async with run_app() as (app, pilot):
        await fake._put(agent)
        await pilot.press("0", "r")
        await until(pilot, lambda: app.focused is not None and app.focused.id == "inspect-raw")
        area = app.focused
        await until(pilot, lambda: "label098" in area.text)
        await pilot.press("pagedown", "pagedown")
        await until(pilot, lambda: area.scroll_offset.y > 20)
        at, cursor = area.scroll_offset, area.cursor_location
        await fake._put(structs.replace(agent, status=Status.PAUSED))
        await until(pilot, lambda: '"paused"' in area.text)
        await until(pilot, lambda: (area.scroll_offset, area.cursor_location) == (at, cursor))
        await pilot.press("r", "slash", *"label090", "enter")
        tree = app.main.query_one("#inspect-tree")
        await until(pilot, lambda: tree.cursor_node is not None and "label090" in tree.cursor_node.data.text)
        await until(pilot, lambda: tree.scroll_offset.y > 50)
        at = tree.scroll_offset
        await fake._put(structs.replace(agent, status=Status.RUNNING, labels=many | {"another": "y"}))
        await until(pilot, lambda: '"another"' in area.text)
        await until(pilot, lambda: tree.cursor_node is not None and "label090" in tree.cursor_node.data.text)
        assert abs(tree.scroll_offset.y - at.y) <= 1
