"""An image being pulled, as the list of images shows it. Pure."""

from __future__ import annotations

from msgspec import Struct, field
from textual.content import Content

from sandbox_console.model.sandbox import HostKey
from sandbox_console.model.text import clean
from sandbox_console.service import Operation
from sandbox_console.tui.text.formatting import span
from sandbox_console.tui.widgets.layer_progress import Layers


class Pull(Struct):
    """An image being pulled."""

    image: str
    host_key: HostKey
    operation: Operation
    began: float
    layers: Layers = field(default_factory=Layers)

    def words(self, now: float) -> Content:
        """Return the progress: how many layers are complete, and the next ones with their bytes."""
        head = Content.assemble(
            ("↓ ", "$text-accent"),
            (clean(self.image, cap=60), "bold"),
            (f"  {self.layers.counted}  {span(now - self.began)}", "$dim"),
        )
        return Content.assemble(head, self.layers.lines)
