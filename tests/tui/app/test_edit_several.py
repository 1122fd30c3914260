"""Several sandboxes are edited in one form: what they share, one plan, one question, a result for each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tui.app.scene import sandbox, screen_text, until
from tests.tui.app.test_bulk import fates, over
from tests.tui.app.test_flows import fill, on
from tests.tui.app.test_form_drafts import drafts
from textual.widgets import Input, Select

from sandbox_console.errors import BackendError
from sandbox_console.model.capability import Capabilities, Capability
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import EVERYTHING, FakeBackend
from sandbox_console.tui.bulk.results_screen import BulkConfirm, BulkScreen
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.form.several_screen import SeveralScreen
from sandbox_console.tui.form.shared_fields import DIFFERS, NONE, shared_fields, with_changes
from sandbox_console.tui.text.form_values import texts_of

WEB = SandboxSpec("web", image="python:3.12", memory_mib=256, egress=("acme.org", "pypi.org"), env={"A": "1", "B": "2"},
                  read_only_root=True)  # fmt: skip
JOB = SandboxSpec("job", image="python:3.12", memory_mib=512, egress=("acme.org",), env={"A": "1", "B": "3"})


def pair():
    return [sandbox("aaaaaaaaaaaa", "web", spec=WEB), sandbox("bbbbbbbbbbbb", "job", spec=JOB)]


class OneRefuses(FakeBackend):
    """A backend that changes every sandbox but one."""

    async def update(self, permit, ref, spec):
        if ref.id == "bbbbbbbbbbbb":
            raise BackendError("the engine said no")
        await super().update(permit, ref, spec)


async def opened(pilot, app):
    await pilot.press("asterisk", "e")
    await until(pilot, on(app, SeveralScreen))
    await until(pilot, lambda: "Nothing differs yet" in screen_text(app))
    return app.screen


async def asked(pilot, app):
    await pilot.press("ctrl+s")
    await until(pilot, on(app, BulkConfirm))
    return " ".join(screen_text(app).split())


def test_entries_that_all_have_are_shared_and_the_rest_is_named():
    shared = shared_fields([WEB, JOB])
    assert (shared["image"].text, shared["image"].others) == ("python:3.12", ())
    assert (shared["memory_mib"].text, set(shared["memory_mib"].others)) == ("", {"256M", "512M"})
    assert (shared["egress"].text, shared["egress"].others) == ("acme.org", ("pypi.org",))
    assert (shared["env"].text, shared["env"].others) == ("A=1", ("B",)), "values of variables are not named"
    assert shared["read_only_root"].text == DIFFERS
    assert "name" not in shared


def test_each_keeps_what_only_it_has():
    shared = shared_fields([WEB, JOB])
    typed = {"egress": "crates.io", "env": "A=1 B=9 C=4", "memory_mib": NONE, "read_only_root": ""}
    web, job = (with_changes(one, typed, shared)[0] for one in (WEB, JOB))
    assert (web.egress, job.egress) == (("pypi.org", "crates.io"), ("crates.io",))
    assert dict(web.env) == dict(job.env) == {"A": "1", "B": "9", "C": "4"}
    assert (web.memory_mib, web.read_only_root, web.name, job.name) == (None, False, "web", "job")


_SPECS = st.builds(
    SandboxSpec, name=st.sampled_from(["a", "b"]), image=st.sampled_from(["x", "y z"]),
    memory_mib=st.none() | st.integers(4, 9), pids=st.none() | st.integers(1, 9), read_only_root=st.booleans(),
    egress=st.lists(st.sampled_from(["a.org", "b.org", "c.org"]), unique=True).map(tuple),
    env=st.dictionaries(st.sampled_from("ABC"), st.text("x =\n'", max_size=3)),
)  # fmt: skip


@given(st.lists(_SPECS, min_size=2, max_size=4))
def test_what_is_not_edited_stays_in_each(specs):
    shared = shared_fields(specs)
    for spec in specs:
        assert with_changes(spec, {}, shared) == (spec, {})
        same = {name: one.text for name, one in shared.items() if not one.others}
        assert with_changes(spec, same, shared) == (spec, {}), "typed and taken back"


@given(st.lists(_SPECS, min_size=2, max_size=4), _SPECS)
def test_what_is_typed_holds_in_each(specs, wanted):
    shared = shared_fields(specs)
    typed = {name: text or NONE for name, text in texts_of(wanted).items() if name in ("memory_mib", "pids")}
    typed["egress"] = " ".join(dict.fromkeys([*shared["egress"].text.split(), *wanted.egress]))
    for spec in specs:
        new, problems = with_changes(spec, typed, shared)
        assert (new.memory_mib, new.pids, problems) == (wanted.memory_mib, wanted.pids, {})
        assert set(new.egress) == set(spec.egress) | set(wanted.egress)


async def test_a_live_change_of_several_asks_once_and_each_has_its_result(run_app):
    fake = FakeBackend(pair())
    async with run_app(fake) as (app, pilot):
        form = await opened(pilot, app)
        assert "Edit 2 sandboxes: job, web" in screen_text(app) or "Edit 2 sandboxes: web, job" in screen_text(app)
        assert form.query_one("#field-memory_mib", Input).placeholder.startswith("differs: ")
        assert not form.query("#field-name")
        await fill(app, pilot, memory_mib="1G")
        await until(pilot, lambda: "2 changed live" in screen_text(app))
        words = await asked(pilot, app)
        assert "Edit 2 sandboxes?" in words
        assert "memory_mib 256M → 1G" in words, words
        assert "memory_mib 512M → 1G" in words, words
        assert "sandbox-console update fake/local/" in words
        assert "--memory 1024M" in words
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is form)
        assert fake.permits == []
        await asked(pilot, app)
        await pilot.press("y")
        await until(pilot, on(app, BulkScreen))
        assert fates(await over(pilot, app)) == {"web": "ok", "job": "ok"}
        assert {one.spec.memory_mib for one in fake.sandboxes.values()} == {1024}
        assert {one.spec.egress for one in fake.sandboxes.values()} == {WEB.egress, JOB.egress}
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)
        assert not drafts(), "what was applied is no draft"


async def test_one_that_fails_does_not_stop_the_others(run_app):
    fake = OneRefuses(pair())
    async with run_app(fake) as (app, pilot):
        await opened(pilot, app)
        await fill(app, pilot, memory_mib="1G")
        await asked(pilot, app)
        await pilot.press("y")
        await until(pilot, on(app, BulkScreen))
        assert fates(await over(pilot, app)) == {"web": "ok", "job": "failed"}
        await until(pilot, lambda: "the engine said no" in screen_text(app))


async def test_those_that_cannot_be_changed_are_left_out_with_the_reason(run_app, fake):
    async with run_app() as (app, pilot):
        await opened(pilot, app)
        await fill(app, pilot, command="sleep 9")
        await until(pilot, lambda: "5 recreated" in screen_text(app) and "1 left out" in screen_text(app))
        words = await asked(pilot, app)
        assert "another tool made it" in words
        assert "5 sandboxes?" in words


async def test_the_question_says_what_a_recreation_loses_and_commits_first(run_app):
    fake = FakeBackend(pair())
    async with run_app(fake) as (app, pilot):
        await opened(pilot, app)
        await fill(app, pilot, image="python:3.13")
        words = await asked(pilot, app)
        assert "recreate: image python:3.12 → python:3.13" in words
        assert "loses no file" in words
        assert "down while the old one" in words
        assert "Commit first" in words
        await pilot.press("k")
        await until(pilot, on(app, BulkScreen))
        assert fates(await over(pilot, app)) == {"web": "ok", "job": "ok"}
        verbs = [permit.verb for permit in fake.permits]
        assert verbs.count("commit") == 2
        assert {one.spec.image for one in fake.sandboxes.values()} == {"python:3.13"}


async def test_a_backend_without_commit_says_so(run_app):
    able = Capabilities(EVERYTHING.supported - {Capability.COMMIT}, {Capability.COMMIT: "it has no images"})
    fake = FakeBackend(pair(), capabilities=able)
    async with run_app(fake) as (app, pilot):
        await opened(pilot, app)
        await fill(app, pilot, image="python:3.13")
        assert "Commit first" not in await asked(pilot, app)


async def test_boxes_that_differ_have_three_states(run_app):
    fake = FakeBackend(pair())
    async with run_app(fake) as (app, pilot):
        form = await opened(pilot, app)
        choice = form.query_one("#field-read_only_root", Select)
        assert choice.value == DIFFERS
        choice.value = "yes"
        await until(pilot, lambda: "recreated" in screen_text(app))
        assert "read_only_root" in await asked(pilot, app)


async def test_what_was_typed_is_asked_about_and_kept_as_a_draft_of_these_sandboxes(run_app):
    fake = FakeBackend(pair())
    async with run_app(fake) as (app, pilot):
        await opened(pilot, app)
        await fill(app, pilot, cpus="3")
        await pilot.press("escape")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("k")
        await until(pilot, lambda: app.screen is app.main)
        await pilot.press("e")
        await until(pilot, on(app, SeveralScreen))
        await until(pilot, lambda: "Restored your unsaved changes" in screen_text(app))
        assert app.screen.query_one("#field-cpus", Input).value == "3"


@pytest.mark.parametrize("value", ["-1", "many"])
async def test_a_wrong_value_is_told_beside_its_field_and_nothing_is_asked(run_app, value):
    fake = FakeBackend(pair())
    async with run_app(fake, config=Config(backend="fake")) as (app, pilot):
        await opened(pilot, app)
        await fill(app, pilot, cpus=value)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: app.focused is not None and app.focused.id == "field-cpus")
        assert "to fix: CPUs" in screen_text(app)
        assert isinstance(app.screen, SeveralScreen)
        assert fake.permits == []


async def test_one_marked_sandbox_has_the_form_of_one(run_app):
    fake = FakeBackend(pair())
    async with run_app(fake) as (app, pilot):
        await pilot.press("space", "e")
        await until(pilot, lambda: "Edit web" in screen_text(app) or "Edit job" in screen_text(app))
        assert app.screen.query("#field-name")
