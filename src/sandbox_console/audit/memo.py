"""What is made of a text, once for each text: of actors, actions and targets a thousand rows have few."""

from __future__ import annotations

from collections.abc import Callable


class Memo(dict[str, str]):
    """``made[text]`` is ``make(text)``. Kept for a block of rows, so that it stays small."""

    def __init__(self, make: Callable[[str], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, text: str) -> str:
        made = self[text] = self._make(text)
        return made
