"""Progress of images being pulled: the last known state of each layer. Pure."""

from __future__ import annotations

from msgspec import Struct, field
from textual.content import Content

from sandbox_console.model.sandbox import HostKey
from sandbox_console.model.text import clean
from sandbox_console.service import Operation
from sandbox_console.tui.text.formatting import span
from sandbox_console.tui.widgets.table.table_layout import fit_cell

_LAYERS_SHOWN = 4
_DONE = ("Pull complete", "Already exists", "done")


class Pull(Struct):
    """An image being pulled. ``layers`` has the last state of each, ``said`` the last message without a layer."""

    image: str
    host_key: HostKey
    operation: Operation
    began: float
    said: str = ""
    layers: dict[str, str] = field(default_factory=dict)

    def note(self, line: str) -> None:
        """Add a line of the operation's progress: ``layer: state``, or a text without a layer."""
        layer, colon, state = line.partition(": ")
        if colon and " " not in layer:
            self.layers[layer] = state
        else:
            self.said = line

    @property
    def left(self) -> list[tuple[str, str]]:
        """The layers that are not complete yet."""
        return [(layer, state) for layer, state in self.layers.items() if not state.startswith(_DONE)]

    def words(self, now: float) -> Content:
        """Return the progress: how many layers are complete, and the next ones with their bytes."""
        there = len(self.layers) - len(self.left)
        head = f"  {there} of {len(self.layers)} layers" if self.layers else f"  {clean(self.said, cap=80)}"
        parts: list[tuple[str, str]] = [("↓ ", "$text-accent"), (clean(self.image, cap=60), "bold")]
        parts += [(f"{head}  {span(now - self.began)}", "$dim")]
        # Active layers come first: users look for what the pull is waiting for.
        moving = sorted(self.left, key=lambda one: "(" not in one[1])
        for layer, state in moving[:_LAYERS_SHOWN]:
            parts += [(f"\n  {fit_cell(clean(layer), 14, 'left')}", "$dim"), (clean(state, cap=80), "")]
        if len(moving) > _LAYERS_SHOWN:
            parts.append((f"\n  {len(moving) - _LAYERS_SHOWN} more wait", "$dim"))
        return Content.assemble(*parts)
