"""docs/architecture.svg is drawn from the imports of today."""

from __future__ import annotations

import re

from scripts import architecture

PACKAGE = architecture.PICTURE.parents[1] / "src" / "sandbox_console"


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


def test_the_page_names_only_what_is_there() -> None:
    page = (architecture.PICTURE.parent / "architecture.md").read_text()
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`", page))
    outside = {"docs/", "scripts/"}
    missing = [name for name in named - outside if not (PACKAGE / name).exists() and not _below_a_room(name)]
    assert len(named) > 20
    assert not missing


def _below_a_room(name: str) -> bool:
    """``gate/`` of the service and ``fleet/`` of the app are named in a sentence that names their room."""
    return any((PACKAGE / room / name).is_dir() for room in ("service", "tui"))
