"""The fleet table: its cursor, its order, what fits, and its cost."""

from __future__ import annotations

import random

import pytest
from textual.app import App

from sandbox_console.tui.fleet.columns import Chosen
from sandbox_console.tui.widgets.table.table import FleetTable, Row
from sandbox_console.tui.widgets.table.table_layout import (
    GAP,
    Cell,
    Column,
    bare_widths,
    fit_cell,
    fit_columns,
    natural_widths,
)

COLUMNS = [
    Column("state", "STATE", 9, 12, priority=0),
    Column("name", "NAME", 10, 40, priority=0, flex=True),
    Column("backend", "BACKEND", 7, 12, priority=2),
    Column("image", "IMAGE", 8, 30, priority=4),
    Column("cpu", "CPU", 5, 7, "right", 0),
    Column("memory", "MEMORY", 8, 10, "right", 0),
    Column("egress", "EGRESS", 8, 14, priority=5),
    Column("secrets", "SECRETS", 7, 7, "right", 6),
    Column("age", "AGE", 4, 5, "right", 3),
    Column("why", "EXIT/WHY", 8, 30, priority=0),
]


def row(at, cpu=0.0, name=None):
    cells = (
        "● running",
        name or f"agent-{at:03}",
        "docker",
        "python:3.12",
        f"{cpu}%",
        "5 MiB",
        "deny all",
        "2",
        "3m",
        "",
    )
    return Row(at, cells, ("ok",) + ("",) * 9, (0, cells[1], "", "", cpu, 5, "", 2, 180, None))


class Fleet(App):
    def __init__(self):
        super().__init__()
        self.chosen = []
        self.moved = []

    def compose(self):
        yield FleetTable(COLUMNS)

    def on_fleet_table_chosen(self, event):
        self.chosen.append(event.key)

    def on_fleet_table_moved(self, event):
        self.moved.append(event.key)


@pytest.fixture
async def fleet():
    app = Fleet()
    async with app.run_test(size=(80, 14)) as pilot:
        table = app.query_one(FleetTable)
        table.focus()
        table.set_rows([row(at) for at in range(50)])
        await pilot.pause()
        yield pilot, table, app


def shown(table):
    return [table.render_line(y).text for y in range(table.size.height)]


async def test_80_columns_keep_what_matters(fleet):
    _, table, _ = fleet
    assert {"state", "name", "cpu", "memory", "why"} <= set(table.shown_columns)
    assert "secrets" not in table.shown_columns
    assert all(len(line) == table.scrollable_size.width for line in shown(table))
    assert "● running" in shown(table)[1], "a state is a glyph and a word, not a colour"


async def test_keys_move_the_cursor(fleet):
    pilot, table, app = fleet
    for keys, key in (
        (("j", "j", "down"), 3), (("k", "up"), 1), (("G",), 49), (("g",), 0), (("end",), 49), (("home",), 0),
        (("pagedown",), 12), (("pageup",), 0), (("k",), 0),
    ):  # fmt: skip
        await pilot.press(*keys)
        assert table.cursor_key == key, keys
        assert any(line.startswith("▸") and f"agent-{key:03}" in line for line in shown(table))
    await pilot.press("j", "enter")
    await pilot.pause()
    assert app.chosen == [1]
    assert app.moved[-1] == 1


async def test_the_cursor_stays_on_its_key(fleet):
    pilot, table, app = fleet
    table.move_to(20)
    table.set_rows([row(at) for at in range(10, 50)])
    await pilot.pause()
    assert table.cursor_key == 20
    assert any(line.startswith("▸") and "agent-020" in line for line in shown(table))
    table.set_rows([row(at) for at in range(25, 50)])
    assert table.cursor_key == 35, "its key is gone: the place stays"
    table.set_rows([])
    assert table.cursor_key is None
    await pilot.press("j", "G", "enter", "pageup")
    table.set_rows([row(1)])
    await pilot.pause()
    assert table.cursor_key == 1
    assert app.moved[-2:] == [None, 1]
    assert table.move_to(99) is False


async def test_sorting_and_its_mark(fleet):
    pilot, table, _ = fleet
    table.set_rows([row(at, cpu) for at, cpu in enumerate((5.0, 30.0, None, 7.0))])
    table.sort_by("cpu")
    assert [r.key for r in table.rows] == [0, 3, 1, 2]
    assert "CPU ▲" in shown(table)[0]
    table.sort_by("cpu")
    assert [r.key for r in table.rows] == [1, 3, 0, 2], "what has no value stays last"
    assert "CPU ▼" in shown(table)[0]
    table.set_rows([row(at, cpu) for at, cpu in enumerate((90.0, 30.0, 1.0))])
    assert [r.key for r in table.rows] == [0, 1, 2], "other rows come in the same order"
    with pytest.raises(KeyError):
        table.sort_by("nothing")
    await pilot.click(table, offset=(15, 0))
    assert table.sort_column == "name"


async def test_the_mouse_selects_and_opens(fleet):
    pilot, table, app = fleet
    await pilot.click(table, offset=(5, 4))
    assert table.cursor_key == 3
    assert app.chosen == []
    await pilot.click(table, offset=(5, 6), times=2)
    await pilot.pause()
    assert app.chosen == [5]


async def test_only_rows_that_differ_are_drawn_again(fleet, monkeypatch):
    pilot, table, _ = fleet
    await pilot.pause()
    drawn = []
    monkeypatch.setattr(table, "refresh_lines", lambda y, count: drawn.append(y))
    rows = [row(at, 99.0 if at in (2, 40) else 0.0) for at in range(50)]
    table.set_rows(rows)
    assert drawn == [3], "row 40 is out of sight"


async def test_wide_names_keep_the_columns_straight(fleet):
    _, table, _ = fleet
    table.set_rows([row(0, name="漢字" * 30), row(1, name="a" * 200), row(2, name="")])
    assert {table.render_line(y).cell_length for y in range(4)} == {table.scrollable_size.width}


async def test_ten_thousand_rows_are_all_there(fleet):
    _, table, _ = fleet
    table.set_rows([row(at, at * 7 % 100) for at in range(10_000)])
    assert table.virtual_size.height >= 10_000
    table.move_to(9_999)
    assert table.cursor_key == 9_999


def test_columns_fit_any_width():
    rng = random.Random(5)
    for _ in range(500):
        columns = [
            Column(str(i), "T" * rng.randrange(9), least := rng.randrange(1, 12), least + rng.randrange(30),
                   priority=rng.randrange(4), flex=rng.random() < 0.3)
            for i in range(rng.randrange(1, 9))
        ]  # fmt: skip
        natural = natural_widths(columns, [["x" * rng.randrange(40) for _ in columns] for _ in range(3)])
        width = rng.randrange(0, 160)
        widths = fit_columns(columns, natural, width)
        always = [i for i, column in enumerate(columns) if column.priority == 0]
        assert set(always) <= set(widths)
        assert all(widths[i] >= columns[i].min_width for i in widths)
        if len(widths) > len(always):
            assert sum(widths.values()) + GAP * (len(widths) - 1) <= width
        dropped = [columns[i].priority for i in range(len(columns)) if i not in widths]
        if dropped:
            assert max((columns[i].priority for i in widths), default=0) <= min(dropped)


@pytest.mark.parametrize(("width", "longest"), [(120, 15), (130, 15), (130, 24), (160, 30)])
def test_a_name_is_whole_before_columns_of_little_worth_are_shown(width, longest):
    columns = Chosen().columns()
    natural = [column.max_width for column in columns]
    natural[1] = longest + 2
    widths = fit_columns(columns, natural, width)
    assert widths[1] >= longest + 2
    assert {"cpu", "memory", "egress", "age", "exit"} <= {columns[i].key for i in widths}


def test_a_graph_gives_its_room_before_a_reason_is_cut():
    columns = Chosen().columns()
    at = {column.key: i for i, column in enumerate(columns)}
    cells = [""] * len(columns)
    cells[at["cpu"]] = Cell("12%", graph="⣀⣀⣀⣀⣀")
    cells[at["memory"]] = Cell("31M/512M", "31M", "⣀⣀⣀⣀⣀")
    for reason, graphs in (("", True), ("exited 137, killed by its time limit", False)):
        cells[at["exit"]] = reason
        natural, bare = natural_widths(columns, [cells]), bare_widths(columns, [cells])
        widths = fit_columns(columns, natural, 80, bare)
        assert ("⣀" in cells[at["cpu"]].form(widths[at["cpu"]])) is graphs
        assert widths[at["cpu"]] >= 3 + GAP
        assert sum(widths.values()) + GAP * (len(widths) - 1) == 80


@pytest.mark.parametrize(
    ("text", "width", "align", "shown_as"),
    [
        ("ab", 4, "left", "ab  "), ("ab", 4, "right", "  ab"), ("abcdef", 4, "left", "abc…"), ("漢字漢", 4, "left", "漢 …"),
        ("漢", 4, "left", "漢  "), ("abc", 0, "left", ""), ("abc", 1, "left", "…"), ("", 2, "left", "  "),
    ],
)  # fmt: skip
def test_cells_are_cut_to_their_width(text, width, align, shown_as):
    assert fit_cell(text, width, align) == shown_as
