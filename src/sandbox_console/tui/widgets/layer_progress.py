"""Progress of an image's layers while it is pulled: the last known state of each. Pure."""

from __future__ import annotations

from msgspec import Struct, field
from textual.content import Content

from sandbox_console.model.text import clean
from sandbox_console.tui.widgets.table.table_layout import fit_cell

_SHOWN = 4
_DONE = ("Pull complete", "Already exists", "done")
_WHOLE = ("Digest", "Status")
"""What an engine writes before a colon about the whole image, at its end. At its beginning that is the tag."""


class Layers(Struct):
    """``states`` has the last state of each layer, ``said`` the last message without a layer."""

    said: str = ""
    states: dict[str, str] = field(default_factory=dict)

    def note(self, line: str) -> None:
        """Add a line of the operation's progress: ``layer: state``, or a text without a layer."""
        layer, colon, state = line.partition(": ")
        if colon and " " not in layer and layer not in _WHOLE and not state.startswith("Pulling from"):
            self.states[layer] = state
        else:
            self.said = line

    @property
    def left(self) -> list[tuple[str, str]]:
        """The layers that are not complete yet."""
        return [(layer, state) for layer, state in self.states.items() if not state.startswith(_DONE)]

    @property
    def counted(self) -> str:
        """How many layers are complete; before any is known, the last message."""
        there = len(self.states) - len(self.left)
        return f"{there} of {len(self.states)} layers" if self.states else clean(self.said, cap=80)

    @property
    def lines(self) -> Content:
        """The next layers with their bytes, a line each, every line after a line break."""
        parts: list[tuple[str, str]] = []
        # Active layers come first: users look for what the pull is waiting for.
        moving = sorted(self.left, key=lambda one: "(" not in one[1])
        for layer, state in moving[:_SHOWN]:
            parts += [(f"\n  {fit_cell(clean(layer), 14, 'left')}", "$dim"), (clean(state, cap=80), "")]
        if len(moving) > _SHOWN:
            parts.append((f"\n  {len(moving) - _SHOWN} more wait", "$dim"))
        return Content.assemble(*parts)
