"""Known secrets out of nested data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def masked(value: Any, mask: Callable[[str], str]) -> Any:
    """``value`` with every string in it, keys too, passed through ``mask``; tuples become lists."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {mask(str(key)): masked(item, mask) for key, item in value.items()}
    return [masked(item, mask) for item in value] if isinstance(value, (list, tuple)) else value
