"""The egress tab and the inbox: from a denial to a rule, and what the gateway then says."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.tui.app.scene import NOW, fleet, ref, sandbox, screen_text, until

from sandbox_console.errors import BackendError
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.egress import Effect, EgressRecord, EgressRule
from sandbox_console.policy.rules import Rules
from sandbox_console.secrets.sources import SecretSource
from sandbox_console.service import Config
from sandbox_console.testing.fake_backend import FakeBackend
from sandbox_console.testing.fake_core import Within
from sandbox_console.tui.egress.egress_text import patterns_of
from sandbox_console.tui.egress.inbox_screen import EgressScreen
from sandbox_console.tui.egress.rule_dialog import EgressAskScreen
from sandbox_console.tui.widgets.table.table import FleetTable

AGENT = ref("aaaaaaaaaaaa")
HOSTILE = "[@click=app.quit]x[/]\x1b]52;c;ZXZpbA==\x07\u202eevil.example"


def record(second, host, *, allowed=False, name="agent", port=443, **fields):
    fields.setdefault("reason", "" if allowed else "not_allowed")
    return EgressRecord(NOW - 60 + second, name, host, port, allowed, **fields)


RECORDS = [
    record(0, "acme.org", allowed=True, rule="acme.org"),
    *(record(at, "pypi.example") for at in range(1, 40)),
    record(41, "ssh.example", port=22),
    record(42, "acme.org", reason="sni_mismatch", rule="acme.org"),
]


def fake_with(records=(), boxes=None, **options):
    within = Within(egress={AGENT.id: list(records)})
    return FakeBackend(boxes or fleet(), clock=lambda: NOW, within=within, **options)


@pytest.fixture(autouse=True)
def _still(monkeypatch):
    monkeypatch.setattr("sandbox_console.service.effects.egress.SETTLE_S", 0.0)
    monkeypatch.setattr("sandbox_console.testing.fake_guest.time.time", lambda: NOW)


def on(app, kind):
    return lambda: isinstance(app.screen, kind)


def hosts(app):
    [table] = app.screen.query("#egress-table, #fleet-egress").results(FleetTable)
    return [row.key for row in table.rows]


async def open_tab(app, pilot):
    app.main.table.move_to(AGENT)
    await pilot.press("o")
    await until(pilot, lambda: hosts(app))


async def to_host(app, pilot, host):
    [table] = app.screen.query("#egress-table, #fleet-egress").results(FleetTable)
    assert table.move_to(host)
    table.focus()
    await pilot.pause()


async def test_the_tab_shows_rules_and_hosts_and_follows(run_app):
    fake = fake_with(RECORDS)
    async with run_app(fake) as (app, pilot):
        await open_tab(app, pilot)
        assert hosts(app) == ["acme.org", "ssh.example", "pypi.example"]
        text = screen_text(app)
        assert "● allow acme.org" in text
        assert "the TLS handshake names another host" in text
        await fake.record(AGENT, record(50, "new.example"))
        await until(pilot, lambda: hosts(app)[0] == "new.example")
        await pilot.press("tab", "tab")


async def test_allowing_for_an_hour_shows_the_change_first_and_checks_it_after(run_app):
    fake = fake_with(RECORDS)
    async with run_app(fake) as (app, pilot):
        await open_tab(app, pilot)
        await to_host(app, pilot, "pypi.example")
        await pilot.press("a")
        await until(pilot, on(app, EgressAskScreen))
        await until(pilot, lambda: "+ allow pypi.example for 1h" in screen_text(app))
        assert not fake.permits, "nothing is done before the yes"
        await pilot.press("y")
        await until(pilot, lambda: "checked: pypi.example:443 is allowed" in screen_text(app))
        rules = (await fake.egress(AGENT)).rules
        assert rules[-1] == EgressRule("pypi.example", Effect.ALLOW, NOW + 3600, "live")
        await until(pilot, lambda: "left" in screen_text(app))
        [entry] = await app.service.history(AuditQuery())
        assert entry.attempt.body["add"][0]["pattern"] == "pypi.example"
        assert entry.end.body["before"] != entry.end.body["after"]


@pytest.mark.parametrize(("key", "until_at"), [("1", NOW + 60), ("3", None)])
async def test_once_is_a_minute_and_always_has_no_end(run_app, key, until_at):
    fake = fake_with(RECORDS)
    async with run_app(fake) as (app, pilot):
        await open_tab(app, pilot)
        await to_host(app, pilot, "ssh.example")
        await pilot.press("a")
        await until(pilot, on(app, EgressAskScreen))
        await pilot.press(key, "y")
        await until(pilot, lambda: len(fake.permits) > 0)
        await until(pilot, lambda: "checked: ssh.example:22" in screen_text(app))
        assert (await fake.egress(AGENT)).rules[-1] == EgressRule("ssh.example:22", Effect.ALLOW, until_at, "live")


async def test_denying_cuts_what_a_rule_allows(run_app):
    fake = fake_with(RECORDS)
    async with run_app(fake) as (app, pilot):
        await open_tab(app, pilot)
        await to_host(app, pilot, "acme.org")
        await pilot.press("d")
        await until(pilot, lambda: "+ deny acme.org" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: "checked: acme.org:443 is denied" in screen_text(app))
        [entry] = await app.service.history(AuditQuery())
        assert entry.attempt.action == "egress-deny"


@pytest.mark.parametrize("keys", [("escape",), ("n",), ("enter",)])
async def test_cancel_has_the_focus_and_changes_nothing(run_app, keys):
    fake = fake_with(RECORDS)
    async with run_app(fake) as (app, pilot):
        await open_tab(app, pilot)
        await pilot.press("a")
        await until(pilot, on(app, EgressAskScreen))
        await pilot.press(*keys)
        await until(pilot, lambda: not isinstance(app.screen, EgressAskScreen))
        assert not fake.permits


async def test_its_template_are_all_of_the_same_label_else_of_the_same_image(run_app):
    labelled = [
        structs.replace(sandbox(id_ * 12, name), labels={"template": mark})
        for id_, name, mark in (("a", "agent", "web"), ("1", "two", "web"), ("2", "three", "other"))
    ]
    fake = fake_with(RECORDS, labelled)
    async with run_app(fake) as (app, pilot):
        await open_tab(app, pilot)
        await to_host(app, pilot, "pypi.example")
        await pilot.press("a")
        await until(pilot, lambda: "template: 2 sandboxes" in screen_text(app))
        await pilot.press("t")
        await until(pilot, lambda: screen_text(app).count("+ allow pypi.example for 1h") == 2)
        await pilot.press("y")
        await until(pilot, lambda: len(fake._rules) == 2)
        assert set(fake._rules) == {AGENT.id, "1" * 12}


async def test_secrets_that_would_go_further_are_named_for_whom_they_would(run_app):
    """Of its template only the other one has the secret; a host that the secret is meant for is no news."""
    boxes = [sandbox("a" * 12, "agent"), sandbox("1" * 12, "two")]
    boxes[1] = structs.replace(boxes[1], spec=structs.replace(boxes[1].spec, secrets=("TOKEN",)))
    config = Config(
        backend="fake", secrets={"TOKEN": SecretSource(source="env:X", inject="env", hosts=("*.acme.org",))}
    )
    fake = fake_with([record(0, "x.acme.org"), record(1, "pypi.example")], boxes)
    async with run_app(fake, config=config) as (app, pilot):
        await open_tab(app, pilot)
        await to_host(app, pilot, "pypi.example")
        await pilot.press("a")
        await until(pilot, lambda: "+ allow pypi.example for 1h" in screen_text(app))
        assert "TOKEN" not in screen_text(app)
        await pilot.press("t")
        await until(pilot, lambda: "! TOKEN is meant for *.acme.org, but" in screen_text(app))
        assert screen_text(app).count("TOKEN") == 1
        await pilot.press("c", "escape")
        line = "sandbox-console egress allow fake/local/{} pypi.example --for 3600s"
        assert app.clipboard.splitlines() == [line.format("a" * 12), line.format("1" * 12)]
        await to_host(app, pilot, "x.acme.org")
        await pilot.press("a", "t")
        await until(pilot, lambda: screen_text(app).count("+ allow x.acme.org for 1h") == 2)
        assert "TOKEN" not in screen_text(app)


async def test_a_wider_pattern_can_be_chosen(run_app):
    fake = fake_with([record(0, "a.files.example")])
    async with run_app(fake) as (app, pilot):
        await open_tab(app, pilot)
        await pilot.press("a")
        await until(pilot, on(app, EgressAskScreen))
        await pilot.press("p")
        await until(pilot, lambda: "+ allow *.files.example for 1h" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: "checked: any.files.example:443 is allowed" in screen_text(app))


async def test_what_the_ceiling_forbids_is_said_before_and_refused(run_app):
    fake = fake_with(RECORDS)
    async with run_app(fake, config=Config(backend="fake", policy=Rules(egress=("acme.org",)))) as (app, pilot):
        await open_tab(app, pilot)
        await to_host(app, pilot, "pypi.example")
        await pilot.press("a")
        await until(pilot, lambda: "not covered by the policy" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: "audit row" in screen_text(app))
        assert not fake.permits


async def test_a_gateway_that_keeps_to_its_old_rules_is_told(run_app):
    class Deaf(FakeBackend):
        async def set_egress(self, permit, ref, rules):
            pass

    fake = Deaf(fleet(), clock=lambda: NOW, within=Within(egress={AGENT.id: RECORDS}))
    async with run_app(fake) as (app, pilot):
        await open_tab(app, pilot)
        await to_host(app, pilot, "pypi.example")
        await pilot.press("a")
        await until(pilot, on(app, EgressAskScreen))
        await pilot.press("y")
        await until(pilot, lambda: "NOT in effect: pypi.example:443 is denied" in screen_text(app))


async def test_the_inbox_holds_denials_of_all_and_allows_to_those_that_asked(run_app):
    other = record(45, "pypi.example", name="other")
    within = Within(egress={AGENT.id: RECORDS, "1" * 12: [other]})
    boxes = [sandbox("a" * 12, "agent"), sandbox("1" * 12, "other", image="alpine")]
    fake = FakeBackend(boxes, clock=lambda: NOW, within=within)
    async with run_app(fake) as (app, pilot):
        await pilot.press("i")
        await until(pilot, on(app, EgressScreen))
        await until(pilot, lambda: set(hosts(app)) == {"acme.org", "ssh.example", "pypi.example"})
        await until(pilot, lambda: "agent other" in screen_text(app))
        await to_host(app, pilot, "pypi.example")
        await pilot.press("a")
        await until(pilot, lambda: "the 2 sandboxes that asked" in screen_text(app))
        await pilot.press("y")
        await until(pilot, lambda: len(fake._rules) == 2)
        await fake.record(AGENT, record(55, "late.example"))
        await until(pilot, lambda: "late.example" in hosts(app))
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is app.main)


async def test_what_cannot_be_read_is_told_and_read_when_it_can_be(run_app, monkeypatch):
    for name in ("AGAIN_S", "SELDOM_S"):
        monkeypatch.setattr(f"sandbox_console.service.reads.record_reader.{name}", 0.05)
    fake = fake_with(RECORDS, faults={"egress_records": BackendError("its records are locked")})
    async with run_app(fake, size=(200, 60)) as (app, pilot):
        await pilot.press("u")
        await until(pilot, lambda: "cannot be read" in screen_text(app))
        await pilot.press("escape", "i")
        await until(pilot, lambda: "its records are locked" in screen_text(app))
        assert "Nothing was denied that is known." in screen_text(app)
        assert "What agent, crashed, done, lost asked for" in screen_text(app)
        fake.faults.verbs.clear()
        await until(pilot, lambda: set(hosts(app)) == {"acme.org", "ssh.example", "pypi.example"})
        await until(pilot, lambda: "locked" not in screen_text(app))
        assert "denials" in screen_text(app).splitlines()[0]
        assert " 3 hosts denied, 41 denials" in screen_text(app), "each is counted once"
        await pilot.press("escape")
        app.main.draw()
        await until(pilot, lambda: "⊘41" in screen_text(app))


async def test_without_a_way_out_it_says_so(run_app):
    boxes = [sandbox("a" * 12, "agent", spec=structs.replace(fleet()[0].spec, egress=()))]
    async with run_app(fake_with(boxes=boxes)) as (app, pilot):
        app.main.table.move_to(AGENT)
        await pilot.press("o")
        await until(pilot, lambda: "No network" in screen_text(app))


async def test_a_gateway_that_cannot_be_asked_is_told(run_app):
    fake = fake_with(RECORDS, faults={"egress": BackendError("the gateway is away")})
    async with run_app(fake) as (app, pilot):
        app.main.table.move_to(AGENT)
        await pilot.press("o")
        await until(pilot, lambda: "the gateway is away" in screen_text(app))


async def test_a_hostile_host_is_shown_clean_and_can_have_no_rule(run_app):
    async with run_app(fake_with([record(0, HOSTILE, reason="bad_host")])) as (app, pilot):
        await open_tab(app, pilot)
        text = screen_text(app)
        assert "[@click=app.quit]x[/]␛]52" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        await pilot.press("a")
        await until(pilot, lambda: "no rule can name it" in screen_text(app))
        assert not isinstance(app.screen, EgressAskScreen)


def test_ways_to_name_a_host():
    assert patterns_of("a.acme.org", 443, allow=True) == ["a.acme.org", "*.acme.org"]
    assert patterns_of("acme.org", 80, allow=True) == ["acme.org"]
    assert patterns_of("a.acme.org", 22, allow=True) == ["a.acme.org:22", "*.acme.org:22"]
    assert patterns_of("a.acme.org", 22, allow=False) == ["a.acme.org", "*.acme.org"]
    assert patterns_of("::1", 22, allow=True) == ["[::1]:22"]
    assert patterns_of("not a host", 1, allow=True) == []


async def test_a_name_that_does_not_resolve_and_a_failed_connection_are_no_denials(run_app):
    fake = fake_with([
        record(1, "secret.example"),
        record(2, "nowhere.invalid", reason="unresolvable", rule="nowhere.invalid"),
        record(3, "down.example", reason="unreachable", rule="down.example"),
    ])  # fmt: skip
    async with run_app(fake) as (app, pilot):
        await until(pilot, lambda: "⊘1 ?1 ✕1" in screen_text(app))
        await pilot.press("i")
        await until(pilot, lambda: on(app, EgressScreen)() and len(hosts(app)) == 3)
        told = {word: line for line in screen_text(app).splitlines() for word in line.split()}
        signs = {"secret.example": "⊘ denied", "nowhere.invalid": "? not resolved", "down.example": "✕ failed"}
        assert {host: signs[host] in told[host] for host in signs} == dict.fromkeys(signs, True)
        assert "3 hosts denied or failed, 1 denial" in screen_text(app)
        assert "1 denials" not in screen_text(app)
        await pilot.press("escape")
        await open_tab(app, pilot)
        await until(pilot, lambda: "? not resolved" in screen_text(app))
        feed = app.service.denials.of(AGENT)
        assert [(one.host, one.denied, one.unresolved, one.failed) for one in feed.hosts(denied_only=True)] == [
            ("down.example", 0, 0, 1), ("nowhere.invalid", 0, 1, 0), ("secret.example", 1, 0, 0),
        ]  # fmt: skip
