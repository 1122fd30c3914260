"""What the list is made of, without a screen: commands, views, columns, groups, order, rows."""

from __future__ import annotations

import json
import random
import re
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.tui.app.scene import NOW, fleet, ref, samples, sandbox

from sandbox_console.errors import UsageError
from sandbox_console.model.event import Changed, Denied, Listed, Removed, Sampled
from sandbox_console.model.sandbox import BackendHealth, Exit, HealthState, SandboxRef, Stats, Status
from sandbox_console.service.config import ViewOptions
from sandbox_console.tui.fleet.arrangement import Arranger, Hidden, ListOptions, fault, newest_first
from sandbox_console.tui.fleet.columns import BY_KEY, USUAL, Chosen, ColumnChoice, choose, column_key
from sandbox_console.tui.fleet.command_parser import (
    Command,
    Known,
    completions,
    filter_of,
    known_of,
    parse_command,
    quoted,
)
from sandbox_console.tui.fleet.filter.filter_parser import parse_filter
from sandbox_console.tui.fleet.fleet_rows import LOOKS, ORDERS, SandboxRow, Showing, paint
from sandbox_console.tui.fleet.groups import GroupKey, group_by
from sandbox_console.tui.fleet.saved_views import VIEWS_MOST, Views
from sandbox_console.tui.state.fleet_state import SAMPLES_KEPT, Denial, FleetState
from sandbox_console.tui.state.reducer import reduce
from sandbox_console.tui.widgets.table.table_layout import Cell, Column, fit_cell, fit_sideways

FLEET = fleet()
STATE = reduce(FleetState(), [Listed("fake", "local", tuple(FLEET))])
KNOWN = Known(
    backends=("docker", "bubblewrap"), hosts=("local", "web1"), labels=("team=red", "team=blue", "tier=a"),
    views=("night",), images=("python:3.12",), aliases={"crit": "faults", "w": "host web1", "loop": "pool", "pool": "loop"},
)  # fmt: skip


# --- commands


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("docker", Command("backend", "docker")), (":exited", Command("state", "exited")), ("Q", Command("quit")),
        ("host web1", Command("host", "web1")), ("all", Command("all")), ("  sb ", Command("all")),
        ("crit", Command("faults")), ("w", Command("host", "web1")), ("group  backend", Command("group", "backend")),
        ("sort -cpu", Command("sort", "-cpu")), ("/web state=exited", Command("filter", "web state=exited")),
        ("columns", Command("columns")), ("columns cpu, mem", Command("columns", "cpu, mem")),
    ],
)  # fmt: skip
def test_a_line_means(line, command):
    assert parse_command(line, KNOWN) == command


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dokcer", "did you mean :docker?"), ("exitd", "did you mean :exited?"), ("zzzzzz", ":help lists the commands"),
        ("host", ":host needs NAME"), ("loop", "refers to itself"), ("critt", "did you mean :crit?"),
    ],
)  # fmt: skip
def test_a_line_that_means_nothing_names_the_nearest(line, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        parse_command(line, KNOWN)


@pytest.mark.parametrize(
    ("typed", "goes_on"),
    [
        ("", []), ("ex", ["exited"]), ("do", ["docker"]), ("host w", ["host web1"]), ("vi", ["view", "views"]),
        ("view n", ["view night"]), ("sort -c", ["sort -cpu"]), ("group label", ["group label:team", "group label:tier"]),
        ("state ex", ["state exited"]), ("cr", ["created", "crit"]), ("audit x", []),
    ],
)  # fmt: skip
def test_a_line_goes_on(typed, goes_on):
    assert completions(typed, KNOWN) == goes_on


@given(st.text(max_size=30))
def test_whatever_is_said_is_a_command_or_told(line):
    try:
        parse_command(line, KNOWN)
    except UsageError as error:
        told = error.message
    else:
        told = "fine"
    assert told
    assert all(one.startswith(line.lstrip().partition(" ")[0]) for one in completions(line, KNOWN))


@given(st.text(max_size=20))
def test_a_command_filters_by_just_what_it_names(value):
    one = structs.replace(FLEET[0], image=value)
    found = parse_filter(filter_of(Command("image", value)))
    assert found.matches(one)
    assert not found.matches(structs.replace(one, image=f"{value}x"))


def test_labels_and_quotes_of_commands():
    assert filter_of(Command("label", "team=red")) == "label.team=red"
    assert filter_of(Command("label", "team")) == "-l team"
    assert filter_of(Command("filter", "a b")) == "a b"
    assert quoted('a "b" *') == '"a \\"b\\" *"'


def test_what_can_be_named_comes_from_the_fleet(tmp_path):
    known = known_of(STATE, Views(tmp_path, {"v": ViewOptions()}).names, {"a": "all"})
    assert (known.backends, known.hosts, known.views) == (["fake"], ["local"], ["v"])
    assert "team=red" in known.labels
    assert known.makers == ["ours", "compose"]  # as the column names them


# --- views and columns, kept


def test_views_are_kept_and_stand_before_the_config(tmp_path):
    views = Views(tmp_path, {"hot": ViewOptions(filter="cpu>80"), "mine": ViewOptions(faults=True)})
    assert views.get("mine").faults
    views.save("hot", ViewOptions(filter="cpu>1", columns=("cpu",), sort="-cpu"))
    again = Views(tmp_path, {"hot": ViewOptions(filter="cpu>80"), "mine": ViewOptions()})
    assert again.names == ["hot", "mine"]
    assert again.get("hot") == ViewOptions(filter="cpu>1", columns=("cpu",), sort="-cpu")
    assert stat.S_IMODE((tmp_path / "views.json").stat().st_mode) == 0o600
    again.forget("hot")
    assert Views(tmp_path, {"hot": ViewOptions(filter="cpu>80")}).get("hot").filter == "cpu>80"
    for bad in (lambda: again.get("ht"), lambda: again.forget("mine"), lambda: again.save("a b", ViewOptions())):
        with pytest.raises(UsageError):
            bad()


def test_views_are_bounded_and_a_broken_file_is_no_view(tmp_path):
    (tmp_path / "views.json").write_text(json.dumps({str(at): {} for at in range(VIEWS_MOST)} | {"x": {"filter": 3}}))
    views = Views(tmp_path, {})
    assert "x" not in views.names
    with pytest.raises(UsageError, match="saved already"):
        views.save("one-more", ViewOptions())
    (tmp_path / "views.json").write_text("[" * 100_000)
    assert Views(tmp_path, {}).names == []


def test_columns_are_kept_and_what_is_broken_is_the_usual(tmp_path):
    ColumnChoice(tmp_path).set(Chosen(("state", "name", "host"), (("name", 20),)), save=True)
    again = ColumnChoice(tmp_path).chosen
    assert again == Chosen(("state", "name", "host"), (("name", 20),))
    assert [column.max_width for column in again.columns()][1] == 20
    assert len(again.columns(everything=True)) == len(BY_KEY)
    ColumnChoice(tmp_path).set(Chosen(), save=False)
    assert ColumnChoice(tmp_path).chosen == again
    for broken in ("{", "[]", '{"columns": ["nope"]}', '{"columns": 3}', '{"widths": {"name": "x"}}'):
        (tmp_path / "columns.json").write_text(broken)
        assert ColumnChoice(tmp_path).chosen == Chosen()
    (tmp_path / "columns.json").write_text('{"columns": ["cpu"], "widths": {"cpu": 9999, "zzz": 4, "name": "x"}}')
    assert ColumnChoice(tmp_path).chosen == Chosen(("state", "name", "cpu"), (("cpu", 80),))


def test_columns_are_named_as_people_name_them():
    assert [column_key(word) for word in ("WHY", "mem", "cpu", "RST", "exit")] == [
        "exit",
        "memory",
        "cpu",
        "restarts",
        "exit",
    ]
    with pytest.raises(UsageError, match="did you mean memory"):
        column_key("memry")
    assert choose(["cpu", "name", "cpu"]).keys == ("state", "cpu", "name")
    assert set(LOOKS) == set(ORDERS) == set(BY_KEY)
    assert set(USUAL) < set(BY_KEY)


# --- what is shown


def arranged(options=None, state=STATE):
    return Arranger(Showing()).arrange(state, options or ListOptions(), NOW)


def test_what_is_hidden_is_counted_once_by_what_hides_it():
    found = arranged(ListOptions(parse_filter("crashed"), faults=True, managed=True))
    assert [one.name for one in found.sandboxes] == ["crashed"]
    assert found.hidden == Hidden(others=1, healthy=2, filtered=2)
    assert found.hidden.total + len(found.sandboxes) == len(FLEET)


@pytest.mark.parametrize(
    ("fields", "bad"),
    [
        ({}, False), ({"status": Status.FAILED}, True), ({"status": Status.LOST}, True),
        ({"status": Status.EXITED, "exit": Exit(0)}, False), ({"status": Status.EXITED, "exit": Exit(2)}, True),
        ({"status": Status.EXITED, "exit": Exit(0, oom=True)}, True), ({"detail": "unhealthy"}, True),
        ({"status": Status.STARTING, "restarts": 4}, True), ({"status": Status.STARTING, "restarts": 0}, False),
        ({"exit": Exit(1)}, False), ({"status": Status.EXITED, "exit": Exit(143, 15)}, False),
        ({"status": Status.EXITED, "exit": Exit(137, 9)}, True),
    ],
)  # fmt: skip
def test_what_is_a_fault(fields, bad):
    assert fault(structs.replace(FLEET[0], **fields), STATE) is bad


def test_what_a_silent_backend_holds_is_a_fault():
    health = {("fake", "local"): BackendHealth("fake", "local", HealthState.UNREACHABLE)}
    assert fault(FLEET[0], structs.replace(STATE, health=health))


def test_groups_have_heads_with_counts_and_fold():
    found = arranged(ListOptions(group="label:team"))
    heads = [row for row in found.rows if row.head]
    assert [row.key.value for row in heads] == ["blue", "red", ""]
    assert "no team" in "".join(heads[2].paint()[0])
    assert "  4" in heads[2].paint()[0]
    assert [row.key.value if row.head else row.sandbox.name for row in found.rows][:4] == [
        "blue",
        "done",
        "red",
        "agent",
    ]
    key = GroupKey("label:team", "")
    folded = arranged(ListOptions(group="label:team", folded=frozenset({key})))
    assert len(folded.rows) == len(found.rows) - 4
    assert len(folded.sandboxes) == len(FLEET)
    assert "".join(folded.rows[-1].paint()[0]).startswith("▸")


@pytest.mark.parametrize(
    ("word", "by"), [("Backend", "backend"), ("none", ""), ("label.x", "label:x"), ("status", "state")]
)
def test_what_to_group_by(word, by):
    assert group_by(word) == by


def test_what_cannot_be_grouped_by_says_so():
    with pytest.raises(UsageError, match="did you mean backend"):
        group_by("bakend")
    with pytest.raises(UsageError):
        group_by("label:")


def test_the_newest_are_first_and_equal_ones_by_name():
    ages = [("b", 5.0), ("a", 5.0), ("new", 9.0), ("none", None), ("old", 1.0)]
    made = [structs.replace(sandbox(name, name), created_at=at) for name, at in ages]
    assert [one.name for one in newest_first(made)] == ["new", "a", "b", "old", "none"]


def test_rows_are_the_same_while_their_sandbox_is():
    arranger = Arranger(Showing())
    before = arranger.arrange(STATE, ListOptions(), NOW)
    sampled = reduce(STATE, [Sampled(FLEET[0].ref, Stats(NOW, 5.0))])
    assert sampled.sandboxes is STATE.sandboxes
    assert arranger.arrange(sampled, ListOptions(), NOW) is before
    changed = reduce(sampled, [Changed(structs.replace(FLEET[0], status=Status.PAUSED))])
    after = arranger.arrange(changed, ListOptions(), NOW)
    same = {id(row) for row in before.rows} & {id(row) for row in after.rows}
    assert len(same) == len(FLEET) - 1


def test_what_changed_came_and_went_is_arranged_as_if_it_had_been_so_from_the_start():
    arranger, options = Arranger(Showing()), ListOptions(parse_filter("!zzz"), managed=True)
    younger = structs.replace(FLEET[1], name="younger", created_at=NOW)
    steps = [
        [Changed(structs.replace(FLEET[0], status=Status.PAUSED))], [Changed(younger)], [Removed(FLEET[2].ref)],
        [Removed(FLEET[3].ref), Changed(FLEET[2])], [Changed(structs.replace(FLEET[0], managed=False))],
    ]  # fmt: skip
    state = STATE
    for news in steps:
        arranger.arrange(state, options, NOW)
        state = reduce(state, news)
        found, fresh = arranger.arrange(state, options, NOW), arranged(options, state)
        assert [row.sandbox for row in found.rows] == [row.sandbox for row in fresh.rows] == list(fresh.sandboxes)
        assert found.hidden == fresh.hidden


@pytest.mark.parametrize("count", [3, 250])
def test_what_changed_its_place_in_a_long_list_goes_where_sorting_all_puts_it(count):
    rng = random.Random(count)
    many = [
        structs.replace(sandbox(f"{at}", f"{rng.randrange(90)}-{at}"), created_at=NOW - at // 3) for at in range(600)
    ]
    state = reduce(FleetState(), [Listed("fake", "local", tuple(many))])
    arranger = Arranger(Showing())
    arranger.arrange(state, ListOptions(), NOW)
    moved = [
        structs.replace(one, created_at=rng.choice((None, NOW - rng.randrange(200)))) for one in rng.sample(many, count)
    ]
    state = reduce(state, map(Changed, moved))
    assert arranger.arrange(state, ListOptions(), NOW).sandboxes == newest_first(state.sandboxes.values())


def test_a_filter_on_samples_follows_them():
    arranger, options = Arranger(Showing()), ListOptions(parse_filter("cpu>80"))
    assert not arranger.arrange(STATE, options, NOW).rows
    state = reduce(STATE, [Sampled(FLEET[0].ref, Stats(NOW, 90.0))])
    assert [row.sandbox.name for row in arranger.arrange(state, options, NOW).rows] == ["agent"]


# --- state and rows


def test_the_last_samples_are_kept_for_the_graphs():
    state = reduce(STATE, [Sampled(FLEET[0].ref, Stats(float(at), float(at))) for at in range(SAMPLES_KEPT + 5)])
    kept = state.history[FLEET[0].ref]
    assert [one.cpu_percent for one in kept] == [float(at) for at in range(5, SAMPLES_KEPT + 5)]
    again = reduce(state, [Sampled(FLEET[0].ref, kept[-1])])
    assert again.history[FLEET[0].ref] == kept, "the same sample is not told twice"
    assert reduce(state, [Changed(structs.replace(FLEET[0], status=Status.EXITED))]).history == {}


def test_denials_are_counted_and_forgotten_with_their_sandbox():
    one = FLEET[0].ref
    state = reduce(
        STATE, [Denied(one, 1, "a.org", 1.0), Denied(one, 4, "b.org", 2.0), Denied(ref("gone"), 1, "x", 1.0)]
    )
    assert state.denied == {one: Denial(4, "b.org", 2.0)}
    assert reduce(state, [Removed(one)]).denied == {}


def cells(one, state=STATE, key="cpu"):
    return paint(one, state, [key], NOW)


def test_cells_have_short_forms_and_graphs():
    one = FLEET[0]
    used = (10.0, 30.0, 49.0)
    state = reduce(STATE, [Sampled(one.ref, Stats(NOW + cpu, cpu, int(cpu) << 20, 100 << 20)) for cpu in used])
    (cpu,), (style,) = cells(one, state)
    assert (cpu.text, style) == ("49%!!", "error"), "it may use half a vCPU"
    assert fit_cell(cpu, 6, "right") == " 49%!!"
    assert fit_cell(cpu, 11, "right").endswith(" 49%!!")
    assert "\u2800" <= fit_cell(cpu, 11, "right")[0] <= "\u28ff"
    (memory,), _ = cells(one, state, "memory")
    assert [fit_cell(memory, width, "right").lstrip("\u2800⣀⣠⣰⣸⡀⢀ ") for width in (6, 8, 15)] == [
        "49M",
        "49M",
        "49M/100M",
    ]
    assert cells(FLEET[2]) == (("–",), ("dim",))


def test_egress_tells_the_last_denial():
    one = FLEET[0]
    state = reduce(STATE, [Denied(one.ref, 2, "evil\x1b.org", NOW - 65)])
    ((cell,), (style,)) = cells(one, state, "egress")
    assert (cell.text, cell.short, style) == ("⊘2 evil␛.org 1m05s, 1 host", "⊘2", "warn")
    assert {fit_cell(cell, width, "left")[:2] for width in range(3, 40)} == {"⊘2"}
    assert cells(one, state, "exit") == (("⊘2 denied 1m05s ago: evil␛.org",), ("warn",)), "for screens without EGRESS"
    assert cells(FLEET[1], key="egress")[0] == ("deny",)
    assert cells(FLEET[4], key="egress")[0] == ("–",)


def test_network_restarts_labels_and_what_is_stale():
    one = structs.replace(FLEET[0], restarts=3)
    state = reduce(STATE, [Changed(one), Sampled(one.ref, Stats(NOW, net_rx=2048, net_tx=512))])
    assert cells(one, state, "net")[0] == (Cell("↓2K ↑512B", "↕2K"),)
    assert cells(one, state, "restarts") == (("3",), ("warn",))
    assert cells(one, state, "labels")[0] == ("team=red",)
    assert cells(FLEET[4], state, "maker")[0] == ("compose",)
    dead = {("fake", "local"): BackendHealth("fake", "local", HealthState.UNREACHABLE)}
    texts, styles = paint(one, structs.replace(state, health=dead), ["state", "cpu"], NOW)
    assert (texts[0], styles) == ("? running", ("warn", "dim"))


def test_a_flood_of_its_log_is_seen_without_the_column_for_it():
    one = FLEET[0]
    state = reduce(STATE, [Changed(one), Sampled(one.ref, Stats(NOW, log_rate=16.0 * (1 << 20)))])
    assert cells(one, state, "log") == (("16M",), ("warn",))
    assert cells(one, state, "exit") == (("log 16M/s",), ("warn",))
    calm = reduce(STATE, [Changed(one), Sampled(one.ref, Stats(NOW, log_rate=2048.0))])
    assert cells(one, calm, "log") == (("2K",), ("",))
    assert "log" not in cells(one, calm, "exit")[0][0]
    assert cells(one, STATE, "log") == (("–",), ("dim",))
    loud = parse_filter("log>1M")
    assert (loud.matches(one, state, NOW), loud.matches(one, calm, NOW)) == (True, False)


def test_every_column_sorts_a_whole_fleet():
    state = reduce(STATE, [Sampled(ref(id_), values[-1]) for id_, values in samples().items()])
    showing = Showing()
    showing.state = state
    rows = [SandboxRow(one, showing) for one in FLEET]
    for at, key in enumerate(BY_KEY):
        values = [value for row in rows if (value := row.order(at, key)) is not None]
        assert sorted(values) is not None
    assert rows[0].key == SandboxRef("fake", "local", "aaaaaaaaaaaa")


def test_sideways_no_column_is_lost():
    columns = [Column(str(at), "T", 10, 10, priority=min(at, 1)) for at in range(12)]
    seen = set()
    for skip in range(11):
        widths = fit_sideways(columns, [10] * 12, 40, skip)
        assert 0 in widths
        assert sum(widths.values()) + 2 * (len(widths) - 1) <= 40
        seen |= set(widths)
    assert seen == set(range(12))
