"""Draw docs/architecture.svg: the rooms of the package and the imports between them, as they are in the code.

python scripts/architecture.py writes the picture; tests/docs/test_architecture_picture.py holds that it is current.
An arrow that follows from two others (transitive reduction) is left out, so that the layers can be seen.
"""

from __future__ import annotations

from collections import defaultdict
from html import escape
from pathlib import Path

import grimp

PICTURE = Path(__file__).parents[1] / "docs" / "architecture.svg"
PACKAGE = "sandbox_console"
FACES = {
    "cli": "command line",
    "tui": "terminal app",
    "web": "browser",
    "library": "Python API",
    "testing": "conformance suite",
    "servers": "HTTP API and MCP",
}
NOTES = FACES | {
    "service": "the one door for actions",
    "backends": "one folder each",
    "audit": "chained log in SQLite",
    "policy": "allow, ask or deny",
    "secrets": "sources and masking",
    "logs": "chunk store and search",
    "recording": "asciicast",
    "egress": "the gateway",
    "model": "frozen data",
    "errors": "one tree, stable codes",
    "hostfs": "files that guests can change",
    "command_server": "imports kept in memory",
    "shell_holder": "kept shells",
    "background_process": "started detached",
}
BOX, HEIGHT, GAP, ROW, EDGE = 148, 50, 14, 92, 16

Edges = dict[str, set[str]]


def imports() -> Edges:
    """Which room imports which: rooms are the folders and modules right below the package."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=False, cache_dir=None)
    rooms = {child.split(".")[1] for child in graph.find_children(PACKAGE)} - {"__main__"}
    edges: Edges = {room: set() for room in rooms}
    for module in graph.modules:
        importer = _room(module)
        if importer in rooms:
            edges[importer] |= {_room(other) for other in graph.find_modules_directly_imported_by(module)} & rooms
    return {room: others - {room} for room, others in edges.items()}


def _room(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]


def reduced(edges: Edges) -> Edges:
    """The edges without those that follow from a longer way. The graph has no circle, which a test holds."""
    return {
        room: {other for other in others if not any(_reaches(edges, via, other) for via in others - {other})}
        for room, others in edges.items()
    }


def _reaches(edges: Edges, start: str, goal: str) -> bool:
    return goal in edges[start] or any(_reaches(edges, via, goal) for via in edges[start])


def layers(edges: Edges) -> list[list[str]]:
    """Rooms by how far they are from what nothing imports: the faces are the first row."""

    def depth(room: str) -> int:
        return 1 + max((depth(other) for other in edges if room in edges[other]), default=-1)

    rows: dict[int, list[str]] = defaultdict(list)
    for room in sorted(edges):
        rows[depth(room)].append(room)
    return [rows[number] for number in sorted(rows)]


def places(rows: list[list[str]]) -> dict[str, tuple[float, float]]:
    """The upper left corner of each room, in pixels."""
    width = _width(rows)
    found = {}
    for number, row in enumerate(rows):
        left = (width - len(row) * (BOX + GAP) + GAP) / 2
        for place, room in enumerate(row):
            found[room] = (left + place * (BOX + GAP), EDGE + number * ROW)
    return found


def _width(rows: list[list[str]]) -> int:
    return max(map(len, rows)) * (BOX + GAP) - GAP + 2 * EDGE


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    x1, y1, x2, y2 = start[0] + BOX / 2, start[1] + HEIGHT, end[0] + BOX / 2, end[1] - 2
    middle = (y1 + y2) / 2
    return f'<path class="arrow" d="M{x1:g},{y1:g} C{x1:g},{middle:g} {x2:g},{middle:g} {x2:g},{y2:g}"/>'


def _box(room: str, x: float, y: float) -> str:
    kind = "face" if room in FACES else "room"
    centre = x + BOX / 2
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{BOX}" height="{HEIGHT}" rx="8"/>'
        f'<text class="name" x="{centre:g}" y="{y + 21:g}">{escape(room)}{"" if room == "errors" else "/"}</text>'
        f'<text class="note" x="{centre:g}" y="{y + 38:g}">{escape(NOTES.get(room, ""))}</text>'
    )


STYLE = """
rect { fill: #f6f8fa; stroke: #57606a; } rect.face { fill: #ddf4ff; stroke: #0969da; }
text { font-family: sans-serif; text-anchor: middle; fill: #1f2328; } .name { font-size: 15px; font-weight: 600; }
.note { font-size: 10px; fill: #57606a; } .arrow { fill: none; stroke: #8c959f; marker-end: url(#head); }
"""


HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#8c959f"/></marker>'
)


def svg() -> str:
    """The picture as SVG."""
    edges = imports()
    rows = layers(edges)
    where = places(rows)
    size = f'width="{_width(rows)}" height="{len(rows) * ROW - (ROW - HEIGHT) + 2 * EDGE}"'
    arrows = [
        _arrow(where[room], where[other]) for room, met in sorted(reduced(edges).items()) for other in sorted(met)
    ]
    boxes = [_box(room, *where[room]) for row in rows for room in row]
    start = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<style>{STYLE}</style><defs>{HEAD}</defs>",
        f'<rect {size} style="fill:white;stroke:none"/>',
    ]
    return "\n".join([*start, *arrows, *boxes, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(svg())
