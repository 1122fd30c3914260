"""A draft of egress rules: tried on the record as one types, applied through the gate, shown as commands."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.tui.app.scene import NOW, fleet, ref, sandbox, screen_text, until
from tests.tui.app.test_egress import HOSTILE, fake_with, on, record
from textual.widgets import Select, TextArea

from sandbox_console.errors import BackendError
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.egress import Effect, EgressRule
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within
from sandbox_console.tui.dialogs.confirm_dialog import ConfirmScreen
from sandbox_console.tui.egress.draft_screen import EgressDraftScreen
from sandbox_console.tui.egress.inbox_screen import EgressScreen
from sandbox_console.tui.widgets.table.table import FleetTable

AGENT = ref("aaaaaaaaaaaa")
RECORDS = [
    record(0, "acme.org", allowed=True, rule="acme.org"),
    *(record(at, "pypi.example") for at in range(1, 4)),
    record(5, "ssh.example", port=22),
]


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    monkeypatch.setattr("sandbox_console.service.effects.egress.SETTLE_S", 0.0)
    monkeypatch.setattr("sandbox_console.testing.fake_guest.time.time", lambda: NOW)


async def open_draft(app, pilot, key="ctrl+e"):
    app.main.table.move_to(AGENT)
    await pilot.press(key)
    await until(pilot, on(app, EgressDraftScreen))
    await until(pilot, lambda: area(app).has_focus)


def area(app):
    return app.screen.query_one(TextArea)


def write(app, text):
    area(app).insert(text, area(app).document.end)
    area(app).move_cursor(area(app).document.end)


async def test_typing_shows_at_once_what_changes_and_applying_makes_it_so(run_app):
    fake = fake_with(RECORDS)
    async with run_app(fake, size=(80, 24)) as (app, pilot):
        await open_draft(app, pilot)
        assert area(app).text == "allow acme.org"
        await until(pilot, lambda: "3 as now: 1 allowed, 2 denied" in screen_text(app))
        write(app, "\n*.example for 1h\ndeny acme.org\n")
        await pilot.press(*"alow x")
        await until(pilot, lambda: "1 newly denied (1)" in screen_text(app))
        text = screen_text(app)
        assert "1 newly allowed (3)" in text, "of port 22 the pattern says nothing"
        assert "+ new  allows 3 on record" in text
        assert text.count("'alow' is neither allow nor deny") == 2, "beside the line and below"
        await pilot.press("ctrl+s")
        await until(pilot, lambda: area(app).cursor_location == (3, 0))
        await pilot.press("ctrl+k")
        await until(pilot, lambda: "Ctrl+S applies it" in screen_text(app))
        await pilot.press("ctrl+s")
        await until(pilot, on(app, ConfirmScreen))
        text = screen_text(app)
        assert "+ allow *.example for 1h" in text
        assert "+ deny acme.org" in text
        assert "1 newly allowed (3 times), 1 newly denied (1 times)" in text
        assert not fake.permits, "nothing is done before the yes"
        await pilot.press("y")
        await until(pilot, lambda: app.screen is app.main)
        assert {(rule.pattern, rule.effect, rule.until) for rule in (await fake.egress(AGENT)).rules} == {
            ("acme.org", Effect.ALLOW, None), ("acme.org", Effect.DENY, None), ("*.example", Effect.ALLOW, NOW + 3600),
        }  # fmt: skip
        [entry] = await app.service.history(AuditQuery())
        assert (entry.attempt.action, entry.end.outcome) == ("egress", "ok")
        assert len(entry.end.body["before"]) == 1 < len(entry.end.body["after"])


async def test_from_the_inbox_for_each_that_asked_and_lines_from_the_rows(run_app):
    boxes = [sandbox("a" * 12, "agent"), sandbox("1" * 12, "other")]
    within = Within(egress={AGENT.id: RECORDS, "1" * 12: [record(9, "pypi.example", name="other")]})
    async with run_app(FakeBackend(boxes, clock=lambda: NOW, within=within)) as (app, pilot):
        await pilot.press("i")
        await until(pilot, on(app, EgressScreen))
        await until(pilot, lambda: app.screen.query_one(FleetTable).move_to("pypi.example"))
        await until(pilot, lambda: "agent other" in screen_text(app))
        await pilot.press("ctrl+e")
        await until(pilot, on(app, EgressDraftScreen))
        await until(pilot, lambda: not area(app).disabled)
        first = app.screen._draft.sandbox
        table = app.screen.query_one(FleetTable)
        await until(pilot, lambda: table.move_to(("pypi.example", 443)))
        table.focus()
        await pilot.press("a")
        await until(pilot, lambda: area(app).text == "allow acme.org\nallow pypi.example")
        await pilot.press("d")
        await until(pilot, lambda: area(app).text == "allow acme.org\ndeny pypi.example")
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "as commands" in screen_text(app))
        assert app.clipboard == f"sandbox-console egress deny {first.ref} pypi.example"
        await pilot.press("escape")
        select = app.screen.query_one(Select)
        [other] = [one.ref for one in boxes if one.ref != first.ref]
        select.value = other
        await until(pilot, lambda: not area(app).disabled and area(app).text == "allow acme.org")
        select.value = first.ref
        await until(pilot, lambda: not area(app).disabled and "deny pypi.example" in area(app).text)
        await pilot.press("escape")
        await until(pilot, on(app, ConfirmScreen))
        await pilot.press("y")
        await until(pilot, on(app, EgressScreen))


async def test_what_the_policy_and_secrets_say_stands_there_before(run_app):
    box = sandbox("a" * 12, "agent")
    box = structs.replace(box, spec=structs.replace(box.spec, secrets=("TOKEN",)))
    secrets = {"TOKEN": SecretSource(source="env:X", inject="env", hosts=("acme.org",))}
    config = Config(backend="fake", secrets=secrets, policy=Rules(egress=("acme.org", "*.example")))
    fake = fake_with([record(0, HOSTILE, reason="bad_host"), *RECORDS], [box])
    async with run_app(fake, config=config) as (app, pilot):
        await open_draft(app, pilot)
        write(app, "\npypi.example")
        await until(pilot, lambda: "! TOKEN is meant for acme.org, but" in screen_text(app))
        write(app, "\nevil.org")
        await until(pilot, lambda: "✕ egress to 'evil.org' is not covered" in screen_text(app))
        text = screen_text(app)
        assert "if you apply it, it is refused" in text
        assert "\x1b" not in text
        assert "\u202e" not in text


async def test_a_draft_of_rules_that_changed_meanwhile_is_not_applied(run_app):
    fake = fake_with(RECORDS)
    async with run_app(fake) as (app, pilot):
        await open_draft(app, pilot)
        write(app, "\npypi.example")
        fake._rules[AGENT.id] = (EgressRule("acme.org"), EgressRule("new.example"))
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "changed meanwhile" in screen_text(app))
        await until(pilot, lambda: not area(app).disabled)
        assert "pypi.example" in area(app).text, "what was written stays"
        assert not fake.permits


async def test_what_cannot_be_read_is_told_and_read_again_and_news_of_the_record_is_counted(run_app):
    fake = fake_with([], faults={"egress": BackendError("the gateway is away")})
    async with run_app(fake) as (app, pilot):
        app.main.table.move_to(AGENT)
        await pilot.press("ctrl+e")
        await until(pilot, lambda: "the gateway is away  Ctrl+R reads again" in screen_text(app))
        assert area(app).disabled
        fake.faults.verbs = {}
        await pilot.press("ctrl+r")
        await until(pilot, lambda: "it has not asked for any host yet" in screen_text(app))
        await fake.record(AGENT, record(50, "new.example"))
        await until(pilot, lambda: "1 hosts and ports, 1 requests" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)


async def test_news_comes_from_the_feed_that_the_list_has_too_and_by_no_reader_of_its_own(run_app, monkeypatch):
    fake = fake_with([])
    read, following = fake.egress_records, []

    def counted(ref, *, since, follow):
        following.append(follow)
        return read(ref, since=since, follow=follow)

    monkeypatch.setattr(fake, "egress_records", counted)
    async with run_app(fake) as (app, pilot):
        app.main.table.move_to(AGENT)
        await pilot.press("ctrl+e")
        await until(pilot, lambda: "it has not asked for any host yet" in screen_text(app))
        for host in ("one.example", "two.example"):
            await fake.record(AGENT, record(50 if host == "one.example" else 60, host))
            await until(pilot, lambda host=host: host in screen_text(app))
        assert following
        assert not any(following)


async def test_without_a_gateway_there_is_nothing_to_draft(run_app):
    boxes = [sandbox("a" * 12, "agent", spec=structs.replace(fleet()[0].spec, egress=()))]
    async with run_app(fake_with(boxes=boxes)) as (app, pilot):
        app.main.table.move_to(AGENT)
        await pilot.press("ctrl+e")
        await until(pilot, lambda: "agent was made without egress" in screen_text(app))
        assert app.screen is app.main
