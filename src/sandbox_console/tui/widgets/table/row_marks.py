"""Which rows are marked: by key, so that sorting, filtering and updates change nothing. Pure."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Sequence


class Marks:
    """Marked keys in the order they were marked, and where a range begins."""

    def __init__(self) -> None:
        self._keys: dict[Hashable, None] = {}
        self._anchor: Hashable | None = None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The marked keys, the one marked first first."""
        return tuple(self._keys)

    def toggle(self, key: Hashable) -> None:
        """Mark it, or take its mark away; a range begins here."""
        if key in self._keys:
            del self._keys[key]
        else:
            self._keys[key] = None
        self._anchor = key

    def add(self, keys: Iterable[Hashable]) -> None:
        """Mark these too."""
        self._keys.update(dict.fromkeys(keys))

    def range_to(self, key: Hashable, shown: Sequence[Hashable]) -> None:
        """Mark all from where the range began to ``key``, as they are shown now; it alone where no range began."""
        start = self._anchor if self._anchor in shown else key
        first, last = sorted((shown.index(start), shown.index(key)))
        self.add(shown[first : last + 1])
        self._anchor = key

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Take these marks away."""
        for key in keys:
            self._keys.pop(key, None)

    def keep(self, there: Container[Hashable]) -> bool:
        """Forget those that are not there any more; whether one was forgotten."""
        gone = [key for key in self._keys if key not in there]
        self.drop(gone)
        return bool(gone)

    def clear(self) -> None:
        """Take all marks away."""
        self._keys.clear()
        self._anchor = None
