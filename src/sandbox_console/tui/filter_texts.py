"""What the filter line searches of each sandbox, made once while it is the same object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.filter_words import Finder

_MOST = 50_000


class _Texts:
    """By the object, which the entry keeps alive: as it is, and in lower case. 10,000 are made in 12 ms, got in 1."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Sandbox, str, str]] = {}
        self._last: tuple[Sequence[Sandbox], int, list[str]] = ((), 0, [])

    def make(self, sandbox: Sandbox) -> tuple[Sandbox, str, str]:
        if len(self._made) >= _MOST:
            self._made.clear()
        ref = sandbox.ref
        parts = (sandbox.name, sandbox.image, sandbox.status, ref.backend, ref.host, ref.id, sandbox.maker)
        text = "\n".join(parts)
        low = text.lower()
        entry = self._made[id(sandbox)] = (sandbox, text, text if low == text else low)
        return entry

    def of(self, sandbox: Sandbox, at: int) -> str:
        return (self._made.get(id(sandbox)) or self.make(sandbox))[at]  # type: ignore[return-value]

    def all(self, sandboxes: Sequence[Sandbox], at: int) -> list[str]:
        if self._last[0] is not sandboxes or self._last[1] != at:
            get = self._made.get
            found: list[str] = [(get(id(one)) or self.make(one))[at] for one in sandboxes]  # type: ignore[misc]
            if len(found) < len(self._last[2]):  # the whole fleet is asked for again with the next word
                return found
            self._last = (sandboxes, at, found)
        return self._last[2]

    def forget(self, sandboxes: Iterable[Sandbox]) -> None:
        self._last = ((), 0, [])
        if self._made:
            for one in sandboxes:
                self._made.pop(id(one), None)


_texts = _Texts()
forget_texts = _texts.forget
"""Let go of sandboxes that are not there any more, or are others now."""


def text_of(sandbox: Sandbox, *, cased: bool) -> str:
    """What is searched of a sandbox: lines of its name, image, state and place; in lower case unless ``cased``."""
    return _texts.of(sandbox, 1 if cased else 2)


def found_in(sandboxes: Sequence[Sandbox], finder: Finder) -> Iterable[object]:
    """For each whether it holds what is searched for."""
    return finder.flags(_texts.all(sandboxes, 1 if finder.cased else 2))
