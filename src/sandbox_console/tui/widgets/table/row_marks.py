"""Which rows are marked, by key, so that sorting, filtering and updates do not change the marks. Pure."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Sequence


class Marks:
    """Marked keys in the order in which they were marked, and the start of a range."""

    def __init__(self) -> None:
        self._keys: dict[Hashable, None] = {}
        self._anchor: Hashable | None = None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The marked keys, in the order in which they were marked."""
        return tuple(self._keys)

    def toggle(self, key: Hashable) -> None:
        """Mark or unmark a key. A range starts here."""
        if key in self._keys:
            del self._keys[key]
        else:
            self._keys[key] = None
        self._anchor = key

    def add(self, keys: Iterable[Hashable]) -> None:
        """Mark these keys too."""
        self._keys.update(dict.fromkeys(keys))

    def range_to(self, key: Hashable, shown: Sequence[Hashable]) -> None:
        """Mark all shown keys from the start of the range to ``key``, or only ``key`` if no range was started."""
        start = self._anchor if self._anchor in shown else key
        first, last = sorted((shown.index(start), shown.index(key)))
        self.add(shown[first : last + 1])
        self._anchor = key

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Remove these marks."""
        for key in keys:
            self._keys.pop(key, None)

    def retain(self, there: Container[Hashable]) -> bool:
        """Remove marks of keys that no longer exist. Returns whether any was removed."""
        gone = [key for key in self._keys if key not in there]
        self.drop(gone)
        return bool(gone)

    def clear(self) -> None:
        """Remove all marks."""
        self._keys.clear()
        self._anchor = None
