"""The hostile texts of test_fuzz in what surrounds the list: bulk, pulse, menus, audit, egress."""

from __future__ import annotations

import pytest
from msgspec import structs
from tests.tui.safety.test_fuzz import assert_quiet, sandbox_of, texts

from sandbox_console.model.audit import AuditEntry, AuditRow, Kind, Verification
from sandbox_console.model.egress import EgressRecord
from sandbox_console.model.event import Acted
from sandbox_console.model.sandbox import BackendHealth, HealthState, SandboxRef, Status
from sandbox_console.service import Feed
from sandbox_console.tui.actions.action_flow import confirmation
from sandbox_console.tui.actions.cli_command import bulk_command
from sandbox_console.tui.audit import audit_screen
from sandbox_console.tui.audit.chain_status import chain_words
from sandbox_console.tui.bulk import bulk_confirm
from sandbox_console.tui.bulk import bulk_run as bulk
from sandbox_console.tui.bulk import results_screen as bulk_screen
from sandbox_console.tui.detail.audit_tab import entry_words
from sandbox_console.tui.dialogs.action_menu import Choice, choice_line
from sandbox_console.tui.egress.egress_text import host_row
from sandbox_console.tui.fleet.mark_bar import mark_words
from sandbox_console.tui.help import _reasons
from sandbox_console.tui.main import dispatch as asking
from sandbox_console.tui.pulse import history as pulse
from sandbox_console.tui.state.fleet_state import FleetState
from sandbox_console.tui.state.verbs import VERBS

INPUTS = 3000
REF = SandboxRef("fake", "local", "x")


def cells(row):
    painted = row.paint() if callable(getattr(row, "paint", None)) else (row.cells,)
    return "\n".join(map(str, painted[0]))


def as_bulk(found):
    for text in found:
        running = structs.replace(sandbox_of(text), status=Status.RUNNING)
        items = [bulk.Item(running, VERBS["stop"].make(running), bulk.ItemOutcome.FAILED, cause=text, note=text)]
        run = bulk.BulkRun(VERBS["stop"], items, None, None)
        yield bulk_screen.title_words(run).plain
        yield from bulk_screen.result_lines(run)
        yield cells(bulk_confirm._asked_row(0, items[0], "stop"))
        yield cells(bulk_screen._ended_row(0, items[0]))
        yield mark_words([running], 1, 80).plain
        yield from (choice_line(one).plain for one in asking.bulk_choices([running], _NoKeys()))
        yield from (choice_line(one).plain for one in asking.commands_of([running]))


class _NoKeys:
    def first(self, action):
        return action


def as_pulse(found):
    for text in found:
        sandbox = sandbox_of(text)
        health = BackendHealth("fake", text, HealthState.UNREACHABLE, text, text, text)
        state = FleetState({sandbox.ref: sandbox}, health={("fake", text): health}, acted=(Acted(1, text, text, "ok"),))
        feed = Feed()
        feed.add(sandbox.ref, text, EgressRecord(1.0, text, text, 443, allowed=False, reason=text))
        yield pulse.state_words(state, 40).plain
        yield pulse.backend_words(state).plain
        yield pulse.trouble_words(state, feed, 9.0).plain
        yield cells(host_row(feed.hosts()[0], 9.0, fleet=True))


def as_audit(found):
    for text in found:
        body = {"name": text, "error": text, "spec": {"name": text}, text: [text, {text: text}]}
        row = AuditRow(
            1, 10**18, Kind.ATTEMPT, None, text, text, text, text, text, f"fake/local/{text}", "failed", 5, body, "h"
        )
        entry = AuditEntry(row, row, (row,))
        yield cells(audit_screen._row(entry))
        yield entry_words(entry).plain
        yield chain_words(text, None, verifying=False).plain
        yield chain_words("", (1.0, Verification(ok=False, rows=1, head=text, problem=text)), verifying=False).plain


def as_questions(found):
    for text in found:
        running = structs.replace(sandbox_of(text), status=Status.RUNNING)
        screen = confirmation(VERBS["kill"].make(running), running, text, text)
        yield screen._body.plain
        yield screen._to_type
        yield choice_line(Choice(text, "Stop", "x", unfit=text)).plain
        yield "".join(part for part, _ in _reasons("Not here", [("pause", text)]))


@pytest.mark.parametrize("render", [as_bulk, as_pulse, as_audit, as_questions], ids=lambda one: one.__name__[3:])
def test_nothing_that_acts_gets_through(render):
    shown = list(render(list(texts(INPUTS, seed=render.__name__))))
    assert len(shown) >= INPUTS
    for text in shown:
        assert_quiet(text, text)


def test_a_copied_command_is_one_line_of_shell_words():
    import shlex

    for text in texts(INPUTS, seed="command"):
        running = structs.replace(sandbox_of(text), status=Status.RUNNING)
        assert shlex.split(bulk_command([VERBS["stop"].make(running)])) == [
            "sandbox-console", "stop", str(running.ref),
        ]  # fmt: skip
