"""The form asks before it changes a sandbox or drops what was typed."""

from __future__ import annotations

import tomllib

import pytest
from msgspec import structs
from tests.tui.app.scene import screen_text, until
from tests.tui.app.test_bursts import settled
from tests.tui.app.test_flows import fill, on
from textual.widgets import Button, Input

from sandbox_console.model.action import Update
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import Section
from sandbox_console.service import Consent
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.dialogs.input_dialog import AskScreen
from sandbox_console.tui.form.form_preview import FormPreview
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.form.form_section import FormSection


def in_view(app, widget):
    return widget.region.height > 0 and app.screen.region.contains_region(widget.region)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_keys_typed_at_once_into_an_edit_change_nothing(run_app, fake, size):
    async with run_app(size=size) as (app, pilot):
        before = fake.sandboxes["aaaaaaaaaaaa"]
        await pilot.press("e", *"stq", "enter")
        await until(pilot, on(app, FormScreen))
        await settled(app, pilot)
        form = app.screen
        assert isinstance(form, FormScreen), "letters are no keys of it either"
        assert form.query_one("#field-name", Input).value == before.name
        await pilot.press("down", *"other", "enter")
        await until(pilot, on(app, ConfirmScreen))
        words = " ".join(screen_text(app).split())
        assert f"name {before.name} → other" in words, words
        assert "changed while it goes on running" in words
        assert {"cancel", "agree"} <= {one.id for one in app.screen.query(Button) if in_view(app, one)}
        await pilot.press("enter")  # the focus is on Cancel
        await until(pilot, lambda: app.screen is form)
        assert (fake.sandboxes["aaaaaaaaaaaa"].name, fake.permits) == (before.name, [])
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: app.screen is app.main and fake.sandboxes["aaaaaaaaaaaa"].name == "other")


async def test_many_changes_leave_the_answers_of_the_question_in_view(run_app, fake):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press("e")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, cpus="2", memory_mib="96M", pids="77", name="other", labels="team=red",
                   image="python:3.13", command="sh -c 'exit 3'", env="A=1")  # fmt: skip
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        await settled(app, pilot)
        assert {"cancel", "agree"} <= {one.id for one in app.screen.query(Button) if in_view(app, one)}


@pytest.mark.parametrize("key", ["n", "e"])
async def test_escape_on_a_changed_form_asks_and_on_another_closes(run_app, fake, key):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press(key)
        await until(pilot, on(app, FormScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        await pilot.press(key)
        await until(pilot, on(app, FormScreen))
        form = app.screen
        await fill(app, pilot, cpus="3")
        await pilot.press("escape")
        await until(pilot, on(app, ConfirmScreen))
        assert {"Go on", "Keep it", "Discard"} == {str(one.label) for one in app.screen.query(Button)}
        await pilot.press("enter")
        await until(pilot, lambda: app.screen is form)
        assert form.query_one("#field-cpus", Input).value == "3"
        form.query_one("#cancel", Button).press()
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: app.screen is app.main)
        assert fake.permits == []


async def test_what_the_form_makes_stands_beside_it_and_can_be_copied_and_saved(run_app, tmp_path):
    async with run_app(size=(140, 40)) as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, name="web", image="python:3.12", memory_mib="2G", max_duration_s="15m")
        await until(pilot, lambda: "--memory 2G" not in screen_text(app) and "memory_mib = 2048" in screen_text(app))
        await pilot.press("ctrl+y")
        command = (
            "sandbox-console create web --backend fake/local --image python:3.12 --memory 2048M --max-duration 900"
        )
        assert app.clipboard == command
        await pilot.press("f4")
        await until(pilot, on(app, AskScreen))
        app.screen.query_one(Input).value = str(tmp_path / "web.toml")
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "web.toml").exists() and isinstance(app.screen, FormScreen))
        found = SandboxSpec.from_dict(tomllib.loads((tmp_path / "web.toml").read_text()))
        assert found == SandboxSpec("web", image="python:3.12", memory_mib=2048, max_duration_s=900)


async def test_a_small_screen_shows_it_in_place_of_the_fields(run_app):
    async with run_app(size=(80, 24)) as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        assert not app.screen.query_one(FormPreview).display
        await pilot.press("f2")
        await until(pilot, lambda: "sandbox-console create NAME" in screen_text(app))
        await pilot.press("f2")
        await until(pilot, lambda: "Image" in screen_text(app) and not app.screen.query_one(FormPreview).display)


async def test_a_folded_section_says_what_is_in_it_and_opens_for_its_problem(run_app):
    async with run_app(size=(120, 40)) as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, name="web", image="x", workspace="relative", cpus="two")
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.focused is not None and app.focused.id == "field-cpus")
        await pilot.press("f3")
        await until(pilot, lambda: app.focused is not None and app.focused.id == "field-workspace")
        assert "is not an absolute path" in screen_text(app), "the section is open"
        assert "to fix: CPUs, Workspace" in screen_text(app)
        await pilot.press("f3")
        await until(pilot, lambda: app.focused is not None and app.focused.id == "field-cpus")
        app.screen.query_one("#field-workspace", Input).value = "/srv"
        section = next(one for one in app.screen.query(FormSection) if one.section == Section.FILES)
        section.collapsed = True
        await until(pilot, lambda: "workspace /srv" in screen_text(app))
        section.collapsed = False
        await until(pilot, lambda: str(section.query_one("CollapsibleTitle").label) == Section.FILES)


async def test_the_basics_fold_like_the_others_by_key_and_by_mouse(run_app):
    async with run_app(size=(120, 40)) as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, name="web", image="python:3.12")
        basics = app.screen.query(FormSection).first()
        assert basics.section is Section.BASICS
        app.screen.query_one("#field-name").focus()
        await pilot.press("up", "enter")
        await until(pilot, lambda: "▸ Basics  name web · on fake · image python:3.12" in screen_text(app))
        assert not in_view(app, app.screen.query_one("#backend"))
        await pilot.click(basics.query_one("CollapsibleTitle"))
        await until(pilot, lambda: not basics.collapsed)
        assert str(basics.query_one("CollapsibleTitle").label) == "Basics"
        await fill(app, pilot, name="bad name!")
        basics.collapsed = True
        await until(pilot, lambda: "▸ Basics  ✕ 1 to fix" in screen_text(app))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: not basics.collapsed and app.focused and app.focused.id == "field-name")


async def test_what_another_console_changed_meanwhile_is_not_undone(run_app, fake):
    """Neither if it came before the question, nor while it was open: then the form looks again."""
    async with run_app() as (app, pilot):
        ref = fake.sandboxes["aaaaaaaaaaaa"].ref

        async def elsewhere(**fields):
            now = (await app.service.inspect(ref)).spec
            await app.service.perform(Update(ref, structs.replace(now, **fields)), consent=Consent(True)).result()

        await pilot.press("e")
        await until(pilot, on(app, FormScreen))
        form = app.screen
        await elsewhere(memory_mib=77)
        await fill(app, pilot, pids="99")
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        assert "memory" not in screen_text(app).partition("live")[2].partition("$")[0]
        await elsewhere(cpus=0.25)
        await pilot.press("y")
        await until(pilot, lambda: app.screen is form and "Somebody changed it meanwhile" in screen_text(app))
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, lambda: app.screen is app.main)
        spec = fake.sandboxes["aaaaaaaaaaaa"].spec
        assert (spec.memory_mib, spec.cpus, spec.pids) == (77, 0.25, 99)


@pytest.mark.parametrize("answer", ["k", "click"])
async def test_commit_first_makes_an_image_before_the_sandbox_is_recreated(run_app, fake, answer):
    async with run_app(size=(120, 40)) as (app, pilot):
        await pilot.press("e")
        await until(pilot, on(app, FormScreen))
        await fill(app, pilot, env="A=1")
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        await settled(app, pilot)
        assert in_view(app, app.screen.query_one("#keep-first"))
        await (pilot.press("k") if answer == "k" else pilot.click("#keep-first"))
        await until(pilot, lambda: app.screen is app.main)
        done = [entry.attempt.action for entry in await app.service.history(AuditQuery()) if entry.outcome == "ok"]
        assert done == ["update", "commit"], "newest first"
        names = [name for image in await fake.images() for name in image.names]
        assert any("-kept:" in name for name in names), names


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_down_alone_goes_through_every_section_to_the_buttons_and_up_comes_back(run_app, size):
    async with run_app(size=size) as (app, pilot):
        await pilot.press("n")
        await until(pilot, on(app, FormScreen))
        await settled(app, pilot)
        sections = [str(one.section) for one in app.screen.query(FormSection)]
        met: list[str] = []
        for _ in range(40):
            await pilot.press("down")
            here = app.focused
            assert here is not None
            met += [str(one.section) for one in here.ancestors if isinstance(one, FormSection)] + [here.id or ""]
            if here.id == "submit":
                break
        assert met[-1] == "submit"
        assert [one for one in dict.fromkeys(met) if one in sections] == sections
        await pilot.press("up", "up")
        assert app.focused is not None
        assert app.focused.parent is app.screen.query(FormSection).last()
