"""How a sandbox's files differ from its image, as text. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from textual.content import Content

from sandbox_console.model.inside import PathChange
from sandbox_console.model.text import clean

SHOWN = 2000
"""Lines that are drawn: the first are folded in 0.1 s, and `sandbox-console diff` prints all."""
_HOW = {"added": ("A", "$text-success"), "changed": ("C", "$text-warning"), "deleted": ("D", "$text-error")}


def change_words(changes: Sequence[PathChange], command: str) -> Content:
    """A line for each path, as docker diff has them, under how many of each there are."""
    if not changes:
        return Content("Nothing differs from its image.")
    count = Counter(one.how for one in changes)
    parts: list[tuple[str, str]] = [(", ".join(f"{number} {how}" for how, number in count.items()), "bold")]
    parts.append((f"   $ {command}\n", "$dim"))
    for one in changes[:SHOWN]:
        sign, style = _HOW.get(one.how, ("?", ""))
        parts += [(f"\n{sign} ", style), (clean(one.path, cap=400), "")]
    if len(changes) > SHOWN:
        parts.append((f"\n\n{len(changes) - SHOWN} more: {command} prints all", "$text-warning"))
    return Content.assemble(*parts)
