"""When an alert fires, when it is over, and when a message is sent about it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_console.model.alert import Alert, AlertState, Silence
from sandbox_console.service.alert_options import AlertRule
from sandbox_console.service.alerts import conditions, lifecycle
from sandbox_console.service.alerts.lifecycle import Occurrence
from sandbox_console.service.alerts.store import Hits, LastMessage

BAD = Occurrence("b/h/1", "web", "it died")


def step(alert: Alert | None, rule: AlertRule, found: Occurrence | None, now: float) -> Alert | None:
    if alert is None:
        return None if found is None else lifecycle.stepped(lifecycle.begun("r", rule, found, now), rule, found, now)
    return lifecycle.stepped(alert, rule, found, now)


def test_it_fires_after_its_time_and_not_before() -> None:
    rule = AlertRule(on="state", lasting="10s")
    alert = step(None, rule, BAD, 0.0)
    assert alert is not None
    assert alert.state is AlertState.PENDING
    assert step(alert, rule, None, 5.0) is None  # it was over before
    alert = step(alert, rule, BAD, 9.9)
    assert alert.state is AlertState.PENDING
    alert = step(alert, rule, BAD, 10.0)
    assert (alert.state, alert.since, alert.fired_at) == (AlertState.FIRING, 0.0, 10.0)
    over = step(alert, rule, None, 20.0)
    assert (over.state, over.resolved_at, over.id) == (AlertState.RESOLVED, 20.0, alert.id)


def fired(id_: str = "a1", state: AlertState = AlertState.FIRING) -> Alert:
    return Alert(id_, "r", "warning", "b/h/1", "web", state, 0.0, "it died", fired_at=0.0)


def test_messages_are_throttled_repeated_and_end() -> None:
    rule = AlertRule(on="state", throttle="5m", repeat="1h")
    status, told = lifecycle.message_due(fired(), rule, None, 0.0)
    assert (status, told) == ("firing", LastMessage("a1", 0.0))
    assert lifecycle.message_due(fired(), rule, told, 3599.0) == (None, None)
    assert lifecycle.message_due(fired(), rule, told, 3600.0) == ("firing", LastMessage("a1", 3600.0))
    assert lifecycle.message_due(fired(state=AlertState.RESOLVED), rule, told, 10.0)[0] == "resolved"
    # another alert about the same subject soon after is held back, and counted if it is over by then
    assert lifecycle.message_due(fired("a2"), rule, told, 100.0) == (None, None)
    status, kept = lifecycle.message_due(fired("a2", AlertState.RESOLVED), rule, told, 120.0)
    assert (status, kept) == (None, LastMessage("a1", 0.0, 1))
    assert lifecycle.message_due(fired("a3"), rule, kept, 300.0) == ("firing", LastMessage("a3", 300.0))


def test_no_message_about_a_silenced_one_and_none_about_its_end() -> None:
    rule = AlertRule(on="state")
    silent = Alert("a1", "r", "warning", "b/h/1", "web", AlertState.FIRING, 0.0, "x", fired_at=0.0, silenced=True)
    assert lifecycle.message_due(silent, rule, None, 0.0) == (None, None)
    assert lifecycle.message_due(fired(state=AlertState.RESOLVED), rule, None, 0.0) == (None, None)


@pytest.mark.parametrize(
    ("rule", "sandbox", "fits"), [("r", "*", True), ("*", "web", True), ("r*", "b/h/*", True), ("x", "*", False), ("r", "db", False)]
)  # fmt: skip
def test_a_silence_covers_what_matches_until_its_time(rule: str, sandbox: str, fits: bool) -> None:
    silence = Silence(1, rule, sandbox, 100.0, "me", "", 0.0)
    assert lifecycle.is_silenced(fired(), [silence], 99.0) is fits
    assert not lifecycle.is_silenced(fired(), [silence], 100.0)


def test_counts_are_compared_with_each_other_and_not_with_the_clock() -> None:
    rule = AlertRule(on="denied", count=3, within="1m")
    hits = Hits()
    for at in (0.0, 50.0, 100.0):
        hits = conditions.counted(hits, rule, at, 10_000.0, "web", "x")
    assert hits.held_at is None
    hits = conditions.counted(
        hits, rule, 105.0, 10_000.0, "web", "x"
    )  # 50, 100, 105: read hours later, it still counts
    assert hits.held_at == 10_000.0
    assert conditions.hits_text(hits, rule, 10_059.0) == "3 times within 1m: x"
    assert conditions.hits_text(hits, rule, 10_060.0) == ""
    assert conditions.over(hits, rule, 10_060.0)


@settings(max_examples=300)
@given(st.lists(st.floats(0, 1000, allow_nan=False), max_size=40), st.integers(1, 6), st.integers(1, 300))
def test_a_count_holds_exactly_if_so_many_came_within_the_time(times: list[float], count: int, within: int) -> None:
    rule = AlertRule(on="log", pattern="x", count=count, within=f"{within}s")
    hits = Hits()
    for at in sorted(times):
        hits = conditions.counted(hits, rule, at, at, "web", "x")
    whole = sorted(times)
    expected = any(whole[i + count - 1] - whole[i] <= within for i in range(len(whole) - count + 1))
    assert (hits.held_at is not None) is expected
