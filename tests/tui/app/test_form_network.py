"""The form's list of hosts: by keys and by the mouse, with what is wrong, presets, denials and a test of a host."""

from __future__ import annotations

import pytest
from tests.tui.app.scene import NOW, fleet, screen_text, until
from tests.tui.app.test_flows import on, row_of
from textual.widgets import Button, Input, Static

from sandbox_console.errors import UsageError
from sandbox_console.model.access import Access, limited_to
from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.egress_advice import notes_on
from sandbox_console.model.egress_rules import split_target
from sandbox_console.service import find_paths
from sandbox_console.service.presets import load_presets
from sandbox_console.testing.fake_backend import FakeBackend, Within
from sandbox_console.tui.form.entry_list import EntryList
from sandbox_console.tui.form.form_screen import FormScreen
from sandbox_console.tui.form.host_choice import HostChoice


async def opened(app, pilot, key="n"):
    await pilot.press(key)
    await until(pilot, on(app, FormScreen))
    return app.screen


def notes(form):
    return " ".join(one.note for one in form.query_one("#list-egress", EntryList)._entries)


def entries(app):
    return row_of(app, "egress").entries


async def test_hosts_are_added_changed_and_removed_by_keys(run_app):
    async with run_app() as (app, pilot):
        form = await opened(app, pilot)
        await pilot.press("f6", *"a.example", "enter", *"*.com", "enter", *"b.com")
        assert entries(app) == ["a.example", "*.com", "b.com"], "what is in the line counts"
        await until(pilot, lambda: "too wide: every host under the public suffix com" in notes(form))
        await pilot.press("down")
        await until(pilot, lambda: "not needed: *.com covers it" in notes(form))
        await pilot.press("up", "up", "delete")  # the list begins at its last entry
        await until(pilot, lambda: entries(app) == ["a.example", "*.com"])
        await pilot.press("home", "enter")  # change it in the line
        line = form.query_one("#field-egress", Input)
        await until(pilot, lambda: app.focused is line and line.value != "")
        before = line.value
        await pilot.press("end", *"x", "escape")
        await until(pilot, lambda: before in entries(app) and line.value == "")
        assert app.screen is form, "Esc took back the change, not the form"
        await pilot.press("up", "home", "enter", "end", *".org", "enter")
        await until(pilot, lambda: f"{before}.org" in entries(app))
        assert entries(app).index(f"{before}.org") == 0
        await pilot.press("ctrl+s")
        assert "sandbox-console create" in form.written()[0]


async def test_up_and_down_skip_no_entry_of_a_list(run_app):
    async with run_app() as (app, pilot):
        form = await opened(app, pilot)
        row_of(app, "egress").put("a.example b.example c.example")
        listed = form.query_one("#list-egress", EntryList)
        await pilot.press("f6", "up")
        assert (app.focused, listed.highlighted) == (listed, 2)
        assert "Remove" in screen_text(app)
        await pilot.press("up", "up", "up")
        assert app.focused is not listed
        await pilot.press("down")
        assert (app.focused, listed.highlighted) == (listed, 0)
        await pilot.press("down", "down", "down", "up")
        assert (app.focused, listed.highlighted) == (listed, 2)


async def test_hosts_are_changed_and_removed_by_the_mouse(run_app):
    async with run_app() as (app, pilot):
        form = await opened(app, pilot)
        row_of(app, "egress").put("a.example b.example")
        await pilot.pause()
        listed = form.query_one("#list-egress", EntryList)
        await pilot.click(listed, offset=(0, 0))  # the cross
        await until(pilot, lambda: entries(app) == ["b.example"])
        await pilot.click(listed, offset=(5, 0))
        line = form.query_one("#field-egress", Input)
        await until(pilot, lambda: line.value == "b.example")
        assert entries(app) == ["b.example"]
        await pilot.click("#field-name")
        await until(pilot, lambda: line.value == "" and entries(app) == ["b.example"])


async def test_the_test_line_says_which_rule_decides(run_app):
    async with run_app() as (app, pilot):
        form = await opened(app, pilot)
        row_of(app, "egress").put("*.acme.org db.acme.org:5432")
        test = form.query_one("#test-host", Input)
        for typed, said in (
            ("api.acme.org", "● port 443 passes by *.acme.org"),
            ("db.acme.org:5432", "● port 5432 passes by db.acme.org:5432"),
            ("acme.org", "allows names below acme.org, not acme.org itself"),
            ("api.acme.org:22", "allows ports 80 and 443 only"),
            ("evil.example", "no rule allows it"),
            ("https://x.org/y", "has a scheme"),
            ("x:99999", "not a number from 1 to 65535"),
        ):
            test.value = typed
            words = said.split("|")
            shown = form.query_one("#test-verdict", Static)
            await until(pilot, lambda words=words, shown=shown: any(one in str(shown.content) for one in words))
        test.focus()
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is form, "Enter in it submits nothing"


PRESETS = """
[presets.mirror]
title = "Our mirror"
hosts = ["mirror.acme.org", "*.cdn.acme.org"]
source = "https://wiki.acme.org/mirror"
"""


def own_presets(text):
    path = find_paths().config_file.with_name("presets.toml")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


async def test_presets_of_the_package_and_of_the_user_are_added(run_app):
    own_presets(PRESETS)
    async with run_app() as (app, pilot):
        form = await opened(app, pilot)
        await pilot.press("f8")
        await until(pilot, on(app, HostChoice))
        presets = app.screen.query_one(EntryList)  # those learnt from this machine may push others out of sight
        await until(pilot, lambda: any("Our mirror" in one.text for one in presets._entries))
        assert any("GitHub" in one.text for one in presets._entries)
        for _ in range(5):  # presets learnt from this machine may begin with the same letter, and come late
            await pilot.press("o")
            await pilot.pause()
            if "Our mirror" in presets._entries[presets.highlighted].text:
                break
        await until(pilot, lambda: "Our mirror" in screen_text(app))
        await pilot.press("space", "enter")
        await until(pilot, lambda: app.screen is form and entries(app) == ["mirror.acme.org", "*.cdn.acme.org"])
        await pilot.click("#presets")
        await until(pilot, on(app, HostChoice))
        await pilot.click(app.screen.query_one(EntryList), offset=(3, 0))
        await pilot.click("#add")
        await until(pilot, lambda: app.screen is form and "api.anthropic.com" in entries(app))


async def test_presets_of_registries_are_what_this_machine_is_set_to(run_app, monkeypatch, tmp_path):
    """Also of an image that is a folder; and what is not known is said, with what to do, and adds nothing."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:sesame@mirror.example/simple")
    sources = tmp_path / "image" / "etc" / "apt" / "sources.list"
    sources.parent.mkdir(parents=True)
    sources.write_text("deb http://deb.example/debian stable main\n")
    async with run_app() as (app, pilot):
        form = await opened(app, pilot)
        form.query_one("#field-image", Input).value = f"dir:{tmp_path}/image"
        await pilot.press("f8")
        await until(pilot, on(app, HostChoice))
        listed = app.screen.query_one(EntryList)
        shown = " ".join(f"{one.text} {one.note}" for one in listed._entries)
        assert "mirror.example  (from PIP_INDEX_URL" in shown
        assert "deb.example  (from /etc/apt/sources.list of the image)" in shown
        assert "Crates: Rust packages, as cargo is set up here ✕ not known: neither" in shown
        assert "add [presets.crates] to " in shown
        assert "sesame" not in shown + screen_text(app)
        await pilot.press("c", "enter")
        await until(pilot, lambda: "its hosts are not known" in screen_text(app))
        await pilot.press("d", "space", "p", "space", "c", "space", "enter")
        await until(pilot, lambda: app.screen is form and len(entries(app)) >= 2)
        assert {"mirror.example", "deb.example"} <= set(entries(app))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[presets.x", "presets.toml: "),
        ('[presets.x]\nhosts = ["a.example"]\n', "title"),
        ('[presets.x]\ntitle = "X"\nhosts = ["https://a"]\n', "presets.x: 'https://a' has a scheme"),
        ('[presets.x]\ntitle = "X"\nhosts = []\nextra = 1\n', "extra"),
        ("#" * ((1 << 20) + 1), "is longer than 1 MiB"),
    ],
    ids=["syntax", "no title", "pattern", "key", "size"],
)
def test_broken_presets_are_told_and_those_of_the_package_stay(text, why):
    own_presets(text)
    found, problem = load_presets(find_paths().config_file)
    assert why in problem
    assert [one.title for one in found if one.title.startswith("Anthropic")]


def test_presets_of_others_are_not_used():
    own_presets(PRESETS)
    find_paths().config_file.with_name("presets.toml").chmod(0o666)
    found, problem = load_presets(find_paths().config_file)
    assert "is not used: every user may write" in problem
    assert all("mirror" not in one.title for one in found)


async def test_people_other_than_admins_are_not_told_how_the_machine_is_set_up(run_app, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "https://mirror.example/simple")
    async with run_app() as (app, pilot):
        await opened(app, pilot)
        with limited_to(lambda: Access(role="operator")):
            choice = await app.screen._presets()
        assert "Those of registries are left out: " in choice._note
        assert "mirror.example" not in repr([entry for entry, _ in choice._offered])


def test_the_presets_of_the_package_have_valid_hosts_and_a_source():
    found, problem = load_presets(find_paths().config_file)
    assert problem == ""
    for one in found:
        assert one.source.startswith("https://")
        assert notes_on(one.hosts) == ("",) * len(one.hosts), one


async def test_hosts_that_sandboxes_were_denied_are_added(run_app):
    def denied(host, port=443):
        return EgressRecord(NOW - 5, "agent", host, port, False, "not_allowed")

    within = Within(egress={"aaaaaaaaaaaa": [denied("pkg.example"), denied("pkg.example"), denied("db.example", 5432)]})
    fake = FakeBackend(fleet(), within=within, clock=lambda: NOW)
    async with run_app(fake) as (app, pilot):
        form = await opened(app, pilot)
        await pilot.press("f9")
        await until(pilot, on(app, HostChoice))
        await until(pilot, lambda: "2 × agent" in screen_text(app))
        await pilot.press("space", "down", "space", "enter")
        await until(pilot, lambda: app.screen is form and len(entries(app)) == 2)
        assert set(entries(app)) == {"pkg.example", "db.example:5432"}


async def test_a_dialog_without_entries_says_so_and_closes(run_app):
    async with run_app() as (app, pilot):
        form = await opened(app, pilot)
        await pilot.press("f9")
        await until(pilot, on(app, HostChoice))
        await until(pilot, lambda: "No sandbox was denied anything so far" in screen_text(app))
        assert app.screen.query_one("#add", Button).disabled
        await pilot.press("enter")  # the focus is on Cancel
        await until(pilot, lambda: app.screen is form)


def test_each_pattern_has_its_note():
    found = notes_on(["a.com", "A.com", "*.com", "*.github.io", "10.0.0.1", "x.org:22", "x.org", "https://y"])
    assert [note.partition(":")[0] for note in found[:5]] == [
        "! not needed", "! it is in the list twice", "! too wide", "! too wide", found[4].partition(":")[0],
    ]  # fmt: skip
    assert found[4].startswith("✕ '10.0.0.1' is an IP address")
    assert found[5:7] == ("", "")
    assert found[7].startswith("✕ 'https://y' has a scheme")
    assert notes_on(["10.0.0.1"], allow_ip=True) == ("",)
    assert notes_on(["*.acme.org", "a.acme.org"])[0] == "covers a.acme.org"


def test_a_target_is_a_host_and_a_port():
    assert split_target("a.example") == ("a.example", 443)
    assert split_target("::1") == ("::1", 443)
    with pytest.raises(UsageError, match="a host is needed"):
        split_target(" ")
