"""Drafts of egress rules: read and written, the one change that leads to them, and recorded traffic under them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_console.egress.decide import verdict
from sandbox_console.model.egress import Effect, EgressRecord, EgressRule
from sandbox_console.model.egress_rules import changed, key_of, opened
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.service import Traffic, replay
from sandbox_console.service.reads.egress_draft import change_to, read_draft, write_draft

NOW = 1_700_000_600.25
REF = SandboxRef("fake", "local", "a")
RULES = (
    EgressRule("acme.org"),
    EgressRule("acme.org", Effect.DENY, NOW + 600.5, "live"),
    EgressRule("*.example.com", Effect.ALLOW, NOW + 90_000.5, "live"),
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def rules_of(lines):
    return [line.rule for line in lines if line.rule]


def test_what_is_written_is_read_as_the_same_rules_later_too():
    text = write_draft(RULES, NOW)
    assert text.splitlines() == [
        "allow acme.org", "deny acme.org until 22:33:20", "allow *.example.com until 2023-11-15T23:23:20",
    ]  # fmt: skip
    assert rules_of(read_draft(text, NOW + 500, known=RULES)) == list(RULES)
    [_, over, _] = read_draft(text, NOW + 601, known=RULES)
    assert over.problem == "22:33:20 is in the past", "not tomorrow's"
    assert change_to(REF, RULES, rules_of(read_draft(text, NOW, known=RULES))) is None


def test_each_bad_line_has_its_reason():
    bad = {
        "alow acme.org": "'alow' is neither allow nor deny",
        "allow": "allow what? Write allow example.com",
        "https://acme.org/x": "'https://acme.org/x' has a scheme; write only the host, as in 'acme.org'",
        "10.0.0.1": "'10.0.0.1' is an IP address; use a host name, or set egress_ip = true in the policy",
        "acme.org for ever": "'ever' is not a duration; write 90s, 15m, 2h or 1d",
        "acme.org for 0s": "for 0s is not above 0",
        "acme.org until 2001-01-01": "2001-01-01 is in the past",
        "acme.org until then": "'then' is not a time; write 14:30 or 2031-01-31T14:30",
        "acme.org for 1h please": "'for 1h please' is not understood after the pattern; write for 1h, or until 14:30",
        "deny PyPI.example.": "line 1 is about the same",
    }
    found = read_draft("\n".join(["deny pypi.example # why", "", "deny 10.0.0.0/8", *bad]), NOW)
    assert [line.problem for line in found] == ["", "", "", *bad.values()]
    assert found[0].rule == EgressRule("pypi.example", Effect.DENY, None, "live")
    [soon, tomorrow] = rules_of(read_draft("a.example until 22:30\nb.example until 22:00", NOW))
    assert soon.until - NOW < 3600 < 80_000 < tomorrow.until - NOW < 86_400


PATTERNS = st.sampled_from(["acme.org", "ACME.org.", "*.acme.org", "acme.org:8443", "10.0.0.0/8", "pypi.example"])
MADE = st.builds(EgressRule, PATTERNS, st.sampled_from(Effect), st.sampled_from([None, NOW + 60, NOW + 3600]))
LISTS = st.lists(MADE, max_size=6, unique_by=lambda rule: (key_of(rule.pattern), rule.effect))


@given(LISTS, LISTS)
def test_the_change_to_a_draft_leads_there_and_leaves_the_rest(rules, draft):
    def terms(some):
        return {(key_of(rule.pattern), rule.effect, rule.until) for rule in some}

    action = change_to(REF, rules, draft)
    after = changed(rules, action) if action else rules
    assert terms(after) == terms(draft)
    assert (action is None) == (terms(rules) == terms(draft))


@given(LISTS, st.sampled_from(["acme.org", "A.acme.org", "b.a.acme.org.", "10.1.2.3", "pypi.example", "x y", ""]))
def test_a_replay_says_what_the_rules_say(rules, host):
    [found] = replay([(1, record(host))], rules, now=NOW + 120)
    said = verdict(rules, host, 443, now=NOW + 120)
    assert (found.would, found.reason, found.rule) == (said.allowed, said.reason, said.rule)


def record(host, *, allowed=False, port=443, **fields):
    fields.setdefault("reason", "" if allowed else "not_allowed")
    return EgressRecord(NOW, "box", host, port, allowed, **fields)


def test_recorded_traffic_under_a_draft_beside_the_rules_in_force():
    traffic = Traffic()
    for one in (
        record("acme.org", allowed=True, address="93.184.216.34"),
        record("acme.org", allowed=True, ended=True),
        record("acme.org", allowed=True, address="93.184.216.34"),
        record("late.example"),  # allowed since then
        record("db.acme.org", allowed=True, address="10.1.2.3"),
        record("inside.acme.org", reason="not_global", address="10.9.9.9"),
        record("odd.acme.org", reason="sni_mismatch"),
    ):
        traffic.add(one)
    rules = [EgressRule(one) for one in ("acme.org", "*.acme.org", "10.1.0.0/16", "late.example")]
    rules.append(EgressRule("acme.org", Effect.DENY, NOW - 1))

    def changes(*draft):
        found = replay(traffic.tallies, [EgressRule(one) for one in draft], rules=rules, now=NOW)
        assert {one.host: one.count for one in found}["acme.org"] == 2
        passing = {one.host: one.address_rule for one in found if one.would}
        assert passing.get("db.acme.org") in (None, draft[2]), "also the rule for its address decides"
        return {one.host: one.change for one in found if one.change}

    assert changes("acme.org", "*.acme.org", "10.1.0.0/16", "late.example") == {}
    assert changes("acme.org", "*.acme.org", "late.example") == {"db.acme.org": "denied"}
    assert changes("acme.org", "*.acme.org", "10.0.0.0/8") == {"inside.acme.org": "allowed", "late.example": "denied"}


def test_what_is_open_where_a_denial_is_gone():
    deny = EgressRule("evil.acme.org", Effect.DENY)
    wide = EgressRule("*.acme.org")
    assert opened([wide, deny], [wide]) == ("evil.acme.org",)
    assert opened([deny], []) == ()
    assert opened([wide, EgressRule("*.acme.org", Effect.DENY)], [wide]) == ("*.acme.org",)
