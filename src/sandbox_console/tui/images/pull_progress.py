"""Images being pulled: each layer's last known progress. Pure."""

from __future__ import annotations

from msgspec import Struct, field
from textual.content import Content

from sandbox_console.model.text import clean
from sandbox_console.service import Operation
from sandbox_console.tui.text.formatting import span
from sandbox_console.tui.widgets.table.table_layout import fit_cell

Place = tuple[str, str]
_LAYERS_SHOWN = 4
_DONE = ("Pull complete", "Already exists", "done")


class Pull(Struct):
    """One image being pulled; ``layers`` holds the last word on each, ``said`` the last that was of none."""

    image: str
    place: Place
    operation: Operation
    began: float
    said: str = ""
    layers: dict[str, str] = field(default_factory=dict)

    def note(self, line: str) -> None:
        """Take a line of the operation's progress: ``layer: state``, or a text of no layer."""
        layer, colon, state = line.partition(": ")
        if colon and " " not in layer:
            self.layers[layer] = state
        else:
            self.said = line

    @property
    def left(self) -> list[tuple[str, str]]:
        """The layers that are not there yet."""
        return [(layer, state) for layer, state in self.layers.items() if not state.startswith(_DONE)]

    def words(self, now: float) -> Content:
        """What is shown of it: how many layers are there, and the next ones with their bytes."""
        there = len(self.layers) - len(self.left)
        head = f"  {there} of {len(self.layers)} layers" if self.layers else f"  {clean(self.said, cap=80)}"
        parts: list[tuple[str, str]] = [("↓ ", "$text-accent"), (clean(self.image, cap=60), "bold")]
        parts += [(f"{head}  {span(now - self.began)}", "$dim")]
        # What moves comes first: a person looks for what it waits for.
        moving = sorted(self.left, key=lambda one: "(" not in one[1])
        for layer, state in moving[:_LAYERS_SHOWN]:
            parts += [(f"\n  {fit_cell(clean(layer), 14, 'left')}", "$dim"), (clean(state, cap=80), "")]
        if len(moving) > _LAYERS_SHOWN:
            parts.append((f"\n  {len(moving) - _LAYERS_SHOWN} more wait", "$dim"))
        return Content.assemble(*parts)
