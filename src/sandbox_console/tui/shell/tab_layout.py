"""How the shells of a tab share its room: side by side or stacked, to any depth. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, structs
from textual.geometry import Region

WHOLE = 1000
"""The share of a part that was never resized."""
_STEP, _LEAST = 200, 200


class Split(Struct, frozen=True):
    """Parts side by side (``across``) or stacked, with their shares of the room. A number is a shell."""

    across: bool
    parts: tuple[Node, ...]
    shares: tuple[int, ...]


Node = int | Split


def leaves(node: Node) -> Iterator[int]:
    """Yield the shells from left to right and from top to bottom."""
    if isinstance(node, Split):
        for part in node.parts:
            yield from leaves(part)
    else:
        yield node


def with_new(node: Node, at: int, new: int, *, across: bool) -> Node:
    """Return the tree with a shell beside another one, or under it."""
    if not isinstance(node, Split):
        return Split(across, (node, new), (WHOLE, WHOLE)) if node == at else node
    if node.across == across and at in node.parts:
        index = node.parts.index(at) + 1
        return Split(
            across, (*node.parts[:index], new, *node.parts[index:]), (*node.shares[:index], WHOLE, *node.shares[index:])
        )
    return structs.replace(node, parts=tuple(with_new(part, at, new, across=across) for part in node.parts))


def without(node: Node, gone: int) -> Node | None:
    """Return the tree without a shell, whose neighbours get its room. None if nothing is left."""
    if not isinstance(node, Split):
        return None if node == gone else node
    kept = [(without(part, gone), share) for part, share in zip(node.parts, node.shares, strict=True)]
    left = [(part, share) for part, share in kept if part is not None]
    if len(left) < 2:
        return left[0][0] if left else None
    return Split(node.across, tuple(part for part, _ in left), tuple(share for _, share in left))


def resized(node: Node, at: int, direction: int) -> Node:
    """Return the tree with more room for a shell (``direction`` 1) or less (-1), taken from the others beside it."""
    if not isinstance(node, Split):
        return node
    if at in node.parts:
        index = node.parts.index(at)
        share = max(_LEAST, node.shares[index] + direction * _STEP)
        return structs.replace(node, shares=(*node.shares[:index], share, *node.shares[index + 1 :]))
    return structs.replace(node, parts=tuple(resized(part, at, direction) for part in node.parts))


def tiled(shells: list[int], *, wide: bool) -> Node:
    """Return the tree of several shells in rows of nearly equal length. ``wide`` prefers columns."""
    columns = max(1, round(len(shells) ** 0.5 + (0.49 if wide else -0.01)))
    rows = [shells[at : at + columns] for at in range(0, len(shells), columns)]
    lines = [_row(row) for row in rows]
    return lines[0] if len(lines) == 1 else Split(across=False, parts=tuple(lines), shares=(WHOLE,) * len(lines))


def _row(shells: list[int]) -> Node:
    return shells[0] if len(shells) == 1 else Split(across=True, parts=tuple(shells), shares=(WHOLE,) * len(shells))


def regions(node: Node, room: Region) -> dict[int, Region]:
    """Return the place of each shell. Together they fill the room."""
    if not isinstance(node, Split):
        return {node: room}
    found: dict[int, Region] = {}
    total, given, used = room.width if node.across else room.height, 0, 0
    for part, share in zip(node.parts, node.shares, strict=True):
        given += share
        end = total * given // sum(node.shares)
        if node.across:
            part_room = Region(room.x + used, room.y, end - used, room.height)
        else:
            part_room = Region(room.x, room.y + used, room.width, end - used)
        found |= regions(part, part_room)
        used = end
    return found


def neighbour(places: Mapping[int, Region], at: int, x: int, y: int) -> int | None:
    """Return the nearest shell in a direction, as (1, 0) is right, that lies beside this one. None at the edge."""
    here = places[at]

    def distance(there: Region) -> int:
        return {(1, 0): there.x - here.right, (-1, 0): here.x - there.right,
                (0, 1): there.y - here.bottom, (0, -1): here.y - there.bottom}[x, y]  # fmt: skip

    def overlap(there: Region) -> int:
        if x:
            return min(here.bottom, there.bottom) - max(here.y, there.y)
        return min(here.right, there.right) - max(here.x, there.x)

    beside = [(distance(there), -overlap(there), one) for one, there in places.items()
              if one != at and distance(there) >= 0 and overlap(there) > 0]  # fmt: skip
    return min(beside)[2] if beside else None
