"""A viewer's app: what changes a sandbox is shown as unavailable in the palette, refused when run, and recorded."""

from __future__ import annotations

from tests.tui.app.scene import until

from sandbox_console.model.access import Access, limited_to
from sandbox_console.model.actor import acting_as
from sandbox_console.model.audit import AuditQuery
from sandbox_console.tui.palette import ConsoleCommands

EVE = "browser:eve.1@127.0.0.1"
NEED_WORDS = {"forward", "edit", "name('rename')", "name('commit')", "name('snapshot')", "name('fork')"}
"""They ask for something before they do anything; what they then do is refused as every action is."""


async def test_what_the_palette_offers_a_viewer_changes_nothing(run_app, fake):
    with acting_as(EVE), limited_to(lambda: Access("viewer")):
        async with run_app() as (app, pilot):
            palette = ConsoleCommands(app.screen)
            barred = {one.action: one async for one in palette._commands() if "you are a viewer" in one.help}
            verbs = {f"verb('{name}')" for name in ("stop", "restart", "pause", "kill", "remove", "quarantine")}
            assert barred.keys() == verbs | NEED_WORDS | {"shell", "attach"}
            refused: list[str] = []

            async def note():
                found = await app.service.history(AuditQuery(limit=100))
                refused[:] = [one.attempt.action for one in found if str(one.outcome) == "denied"]
                assert {one.attempt.actor for one in found} <= {EVE}

            for count, action in enumerate(sorted(verbs), 1):
                await palette._run(barred[action])
                for _ in range(1500):
                    if len(refused) == count:
                        break
                    if app.screen is not app.main and app.screen.is_current:
                        app.screen.dismiss(True)  # whatever is asked, and even without what one has to type
                    await pilot.pause(0.02)
                    await note()
                assert len(refused) == count, action
            assert {f"verb('{name}')" for name in refused} == verbs
            await until(pilot, lambda: fake.permits == [])
