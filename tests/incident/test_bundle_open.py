"""A bundle opened as a console that can only be read."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import pytest
from tests.incident.conftest import Make, until_ended

from sandbox_console.errors import ConsoleError, Unsupported
from sandbox_console.model import action
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.log import LogQuery, LogRecord
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service import Console
from sandbox_console.service.incident.bundle import bundle as make_bundle
from sandbox_console.service.incident.bundle_open import open_bundle
from sandbox_console.service.incident.cause import cause
from sandbox_console.service.incident.timeline import timeline


async def logged(console: Console, ref: SandboxRef, query: LogQuery) -> list[bytes]:
    found = [item async for batch in console.logs(ref, query) for item in batch]
    return [item.data for item in found if isinstance(item, LogRecord)]


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


async def test_it_shows_what_was_there(console: Console, make: Make, left: Path) -> None:
    ref = await make("sh", "-c", r"seq 20; printf 'bad \377\n'; echo ERROR it broke >&2; exit 3")
    runs = await make("sleep", "1000")
    ended = await until_ended(console, ref)
    out = io.BytesIO()
    await make_bundle(console, [ended, await console.inspect(runs)], out.write, until=4e9)
    assert (await cause(console, ended)).verdict is not None
    async with open_bundle(out) as shown:
        assert {one.ref for one in (await shown.list())[0]} == {ref, runs}
        assert await shown.inspect(ref) == ended
        for query in (LogQuery(), LogQuery(tail=2), LogQuery(since=ended.finished_at - 0.01)):
            assert sorted(await logged(shown, ref, query)) == sorted(await logged(console, ref, query))
        why, then = await cause(shown, ended), await cause(console, ended)
        assert (why.verdict.headline, why.last_words) == (then.verdict.headline, then.last_words)
        known = await console.history(AuditQuery(target=str(ref), action="create"))
        assert await shown.history(AuditQuery(target=str(ref), action="create")) == known
        moments = (await timeline(shown, [ended])).moments
        assert "ERROR it broke" in {one.text for one in moments}
        assert any("sleep" in one.command for one in await shown.inside.processes(runs))
        with pytest.raises(Unsupported, match="the bundle has no processes"):
            await shown.inside.processes(ref)
        with pytest.raises(ConsoleError):
            await shown.perform(action.Kill(runs)).result()
        assert (await shown.verify()).ok
        assert list(left.iterdir())
    assert not list(left.iterdir())


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_one_that_does_not_hold_is_not_opened(console: Console, make: Make, left: Path) -> None:
    ref = await make("sh", "-c", "exit 1")
    out = io.BytesIO()
    await make_bundle(console, [await until_ended(console, ref)], out.write, until=4e9)
    out.write(b"more")
    with pytest.raises(ConsoleError, match="the bundle is not opened"):
        async with open_bundle(out):
            pass
    assert not list(left.iterdir())


@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True)
async def test_the_app_shows_it(console: Console, make: Make, left: Path) -> None:
    from sandbox_console.tui.app import ConsoleApp

    ref = await make("sh", "-c", "echo a line of its log; exit 3", name="evident")
    out = io.BytesIO()
    await make_bundle(console, [await until_ended(console, ref)], out.write, until=4e9)
    async with open_bundle(out) as shown:
        app = ConsoleApp(shown)
        async with app.run_test(size=(100, 30)) as pilot:
            for _ in range(100):
                await pilot.pause(0.05)
                if "evident" in app.export_screenshot() and "a&#160;line" in app.export_screenshot():
                    break
            drawn = app.export_screenshot()
            assert "evident" in drawn
            assert "a&#160;line&#160;of&#160;its&#160;log" in drawn
