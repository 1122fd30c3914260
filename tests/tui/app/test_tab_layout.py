"""Splits as trees: every change keeps every shell once, and the regions fill the room."""

from __future__ import annotations

import random

import pytest
from textual.geometry import Region

from sandbox_console.tui.shell.shell_tabs import fitted
from sandbox_console.tui.shell.tab_layout import Split, leaves, neighbour, regions, resized, tiled, with_new, without

ROOM = Region(0, 0, 80, 21)


def check(node, shells):
    assert sorted(leaves(node)) == sorted(shells)
    places = regions(node, ROOM)
    assert sum(one.area for one in places.values()) == ROOM.area
    cells = [(x, y) for one in places.values() for x in range(one.x, one.right) for y in range(one.y, one.bottom)]
    assert len(set(cells)) == ROOM.area, "no two overlap"


@pytest.mark.parametrize("seed", range(10))
def test_any_order_of_changes_keeps_every_shell_once(seed):
    chance = random.Random(seed)
    node, shells = 0, [0]
    for number in range(1, 60):
        at = chance.choice(shells)
        match chance.randrange(4):
            case 0 | 1:
                node = with_new(node, at, number, across=chance.random() < 0.5)
                shells.append(number)
            case 2 if len(shells) > 1:
                node = without(node, at)
                shells.remove(at)
            case _:
                node = resized(node, at, chance.choice([-1, 1]))
        check(node, shells)


def test_the_last_one_leaves_nothing_and_a_split_of_one_is_none():
    node = with_new(1, 1, 2, across=True)
    assert without(node, 2) == 1
    assert without(1, 1) is None
    nested = with_new(node, 2, 3, across=False)
    assert without(nested, 1) == Split(across=False, parts=(2, 3), shares=(1000, 1000))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 9, 16])
@pytest.mark.parametrize("wide", [True, False])
def test_tiles(count, wide):
    check(tiled([*range(count)], wide=wide), [*range(count)])


def test_the_neighbour_is_the_nearest_that_lies_beside():
    node = with_new(with_new(1, 1, 2, across=True), 2, 3, across=False)
    places = regions(node, ROOM)
    assert neighbour(places, 1, 1, 0) in (2, 3)
    assert neighbour(places, 2, 0, 1) == 3
    assert neighbour(places, 3, 0, -1) == 2
    assert neighbour(places, 3, -1, 0) == 1
    assert neighbour(places, 1, -1, 0) is None
    assert neighbour(places, 1, 0, 1) is None


def test_names_of_tabs_share_the_room_and_keep_their_signs():
    assert fitted(["1 agent", "2 b"], ["", "♪"], 40) == [" 1 agent ", " 2 b ♪ "]
    found = fitted(["1 " + "long" * 20, "2 b"], ["♪", ""], 30)
    assert sum(map(len, found)) <= 30
    assert found[0].endswith("… ♪ ")
    assert found[1] == " 2 b "
    assert fitted([], [], 10) == []
