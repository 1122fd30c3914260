"""Time and ids that are the same in every run."""

from __future__ import annotations

import random


class Clock:
    """Seconds since the epoch that stand still until they are moved."""

    def __init__(self, at: float = 1_700_000_000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        """Move on."""
        self.at += seconds


class Ids:
    """Twelve hexadecimal digits at a time, from a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable on purpose

    def __call__(self) -> str:
        return f"{self._random.getrandbits(48):012x}"
