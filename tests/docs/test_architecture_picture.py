"""docs/architecture.svg is drawn from the imports of today."""

from __future__ import annotations

from scripts import architecture


def test_the_picture_is_current() -> None:
    assert architecture.PICTURE.read_text() == architecture.svg(), "python scripts/architecture.py draws it again"


def test_the_picture_has_every_room_and_only_downward_arrows() -> None:
    edges = architecture.imports()
    rows = architecture.layers(edges)
    row_of = {room: number for number, row in enumerate(rows) for room in row}
    assert {"cli", "tui", "service", "model"} <= row_of.keys()
    assert all(row_of[room] < row_of[other] for room, others in edges.items() for other in others)


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    assert architecture.reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}
