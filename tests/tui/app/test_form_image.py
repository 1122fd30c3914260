"""The form's image: completed from the backend's, pinned by a key, pulled in place, and held to the policy."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import fleet, screen_text, until
from tests.tui.app.test_flows import on, row_of
from textual.content import Content
from textual.widgets import Input

from sandbox_console.errors import Unsupported
from sandbox_console.policy.rules import Rules
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.tui.form.entry_list import EntryList
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.widgets.layer_progress import Layers


async def opened(app, pilot):
    await pilot.press("n")
    await until(pilot, on(app, FormScreen))
    await until(pilot, lambda: row_of(app, "image")._images != ())
    return app.screen.query_one("#field-image", Input)


async def test_it_is_completed_pinned_and_pulled_by_keys(run_app, fake):
    async with run_app() as (app, pilot):
        line = await opened(app, pilot)
        line.focus()
        await pilot.press(*"py")
        await until(pilot, lambda: "python:3.12  42B" in screen_text(app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: line.value == "python:3.12" and app.focused is line)
        await pilot.press("f5")
        await until(pilot, lambda: line.value.startswith("python@sha256:"))
        line.value = "new:1"
        await until(pilot, lambda: "not here; it is pulled" in screen_text(app))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: "● here: 42B" in screen_text(app))
        assert [permit.verb for permit in fake.permits] == ["pull"]


async def test_a_name_and_enter_make_nothing_without_an_image(run_app, fake):
    fake.validate = lambda spec: {}  # as bubblewrap, which takes an empty one for this machine's programs
    async with run_app() as (app, pilot):
        line = await opened(app, pilot)
        await pilot.press(*"web", "enter")
        await until(pilot, lambda: "an image is needed" in screen_text(app) and app.focused is line)
        assert fake.permits == []
        await app.screen.check()  # of a key that was typed before
        await pilot.pause()
        assert "an image is needed" in screen_text(app)


async def test_each_layer_of_a_pull_has_a_line(run_app):
    async with run_app() as (app, pilot):
        await opened(app, pilot)
        layers = Layers()
        for said in (
            "1: Pulling from team/app",
            "Digest: sha256:1",
            "aa11: Pull complete",
            "bb22: Waiting",
            "cc33: Downloading 2/9 MiB (22 %)",
        ):
            layers.note(said)
        row_of(app, "image").note_pull(Content.assemble(layers.counted, layers.lines))
        await until(pilot, lambda: "1 of 3 layers" in screen_text(app))
        lines = [line.split("▏")[0].strip() for line in screen_text(app).splitlines()]
        at = next(at for at, line in enumerate(lines) if "1 of 3 layers" in line)
        assert [line.split() for line in lines[at + 1 : at + 3]] == [
            ["cc33", "Downloading", "2/9", "MiB", "(22", "%)"],
            ["bb22", "Waiting"],
        ]


async def test_it_is_chosen_by_the_mouse(run_app):
    async with run_app() as (app, pilot):
        line = await opened(app, pilot)
        await pilot.click(line)
        await until(pilot, lambda: "rust:1  42B" in screen_text(app))
        await pilot.click(app.screen.query_one("#image-list", EntryList), offset=(2, 2))
        await until(pilot, lambda: line.value == "rust:1")


async def test_a_missing_one_is_told_and_the_policys_patterns_are_shown(run_app):
    config = Config(backend="fake", policy=Rules(images=("python:*", "rust:*")))
    async with run_app(config=config) as (app, pilot):
        line = await opened(app, pilot)
        line.value = "node:22"
        await until(pilot, lambda: "✕ the policy allows only python:*, rust:*" in screen_text(app))
        line.value = "python:missing"
        await until(pilot, lambda: "the policy allows only" not in screen_text(app))
        await pilot.press("ctrl+l")
        await until(pilot, lambda: any("no registry has python:missing" in text for _, _, text in app.message_log))


@pytest.fixture
def folders(tmp_path):
    for name in ("alpine", "arch", ".hidden"):
        (tmp_path / "roots" / name).mkdir(parents=True)
    (tmp_path / "roots" / "afile").touch()
    return tmp_path / "roots"


async def test_without_images_folders_are_completed(run_app, folders):
    fake = FakeBackend(fleet())

    async def none():
        raise Unsupported("it has no images")

    fake.images = none
    async with run_app(fake) as (app, pilot):
        line = await opened(app, pilot)
        line.value = f"dir:{folders}/a"
        row = row_of(app, "image")
        await until(pilot, lambda: row._names == [f"dir:{folders}/alpine", f"dir:{folders}/arch"])
        line.value = "dir:/nowhere/at/all/"
        await until(pilot, lambda: row._names == [])
        line.value = ""
        await until(pilot, lambda: row._names == ["host", "dir:"])
