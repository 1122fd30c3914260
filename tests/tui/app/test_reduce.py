"""From events to the state: pure, so neither an app nor a loop is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sandbox_console.model.event import Acted, AuditChanged, Changed, Gap, HealthChanged, Listed, Removed, Sampled
from sandbox_console.model.sandbox import BackendHealth, HealthState, Sandbox, SandboxRef, Stats, Status
from sandbox_console.tui.state.fleet_state import ACTED_KEPT, Ended, FleetState, InFlight, ShellClosed, ShellOpened
from sandbox_console.tui.state.reducer import reduce


def one(id_, backend="a", status=Status.RUNNING):
    return Sandbox(SandboxRef(backend, "local", id_), id_, status)


A, B, OTHER = one("1"), one("2"), one("3", "b")
START = reduce(FleetState(), [Listed("a", "local", (A, B)), Listed("b", "local", (OTHER,))])


def test_a_list_replaces_what_its_backend_had_and_nothing_else():
    after = reduce(START, [Listed("a", "local", (B,))])
    assert set(after.sandboxes) == {B.ref, OTHER.ref}
    assert set(START.sandboxes) == {A.ref, B.ref, OTHER.ref}, "the state before must not change"


def test_changes_and_removals_are_taken_in_their_order():
    stopped = one("1", status=Status.EXITED)
    assert reduce(START, [Removed(A.ref), Changed(stopped)]).sandboxes[A.ref] is stopped
    assert A.ref not in reduce(START, [Changed(stopped), Removed(A.ref)]).sandboxes


def test_samples_are_kept_of_running_ones_only():
    state = reduce(START, [Sampled(A.ref, Stats(1.0, 5.0)), Sampled(SandboxRef("a", "local", "gone"), Stats(1.0))])
    assert set(state.stats) == {A.ref}
    ended = reduce(state, [Changed(one("1", status=Status.EXITED)), Sampled(A.ref, Stats(2.0, 9.0))])
    assert ended.stats == {}


def test_a_dead_backend_keeps_its_sandboxes_and_marks_them_stale():
    dead = BackendHealth("a", "local", HealthState.UNREACHABLE, "socket gone")
    state = reduce(START, [HealthChanged(dead)])
    assert set(state.sandboxes) == set(START.sandboxes)
    assert state.stale(A.ref)
    assert not state.stale(OTHER.ref)
    assert state.dead == [dead]


def test_connecting_until_every_backend_has_answered():
    assert FleetState().connecting
    state = reduce(FleetState(), [HealthChanged(BackendHealth("a", "local", HealthState.CONNECTING))])
    assert state.connecting
    assert not reduce(state, [HealthChanged(BackendHealth("a", "local", HealthState.OK))]).connecting


def test_actions_in_flight_shells_audit_and_losses():
    state = reduce(START, [InFlight(A.ref, "stop"), ShellOpened(B.ref), AuditChanged("disk full"), Gap(2), Gap(3)])
    assert state.busy == {A.ref: "stop"}
    assert state.shells == {B.ref}
    assert (state.audit_problem, state.missed) == ("disk full", 5)
    after = reduce(state, [Ended(A.ref), ShellClosed(B.ref), AuditChanged("")])
    assert (after.busy, after.shells, after.audit_problem) == ({}, frozenset(), "")


def test_ended_actions_are_bounded():
    state = reduce(FleetState(), [Acted(at, "stop", "x", "ok") for at in range(ACTED_KEPT + 7)])
    assert len(state.acted) == ACTED_KEPT
    assert state.acted[-1].audit_id == ACTED_KEPT + 6


@pytest.mark.parametrize(
    "module",
    [
        "state.fleet_state",
        "state.reducer",
        "fleet.filter.filter_parser",
        "state.verbs",
        "text.form_values",
        "text.formatting",
    ],
)
def test_the_pure_parts_need_no_textual(module):
    code = f"import sys, sandbox_console.tui.{module}; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
