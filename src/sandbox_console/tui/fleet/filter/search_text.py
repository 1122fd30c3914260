"""The text of each sandbox that the filter line searches, built once for each object. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from sandbox_console.model.sandbox import Sandbox
from sandbox_console.tui.fleet.filter.tokens import Finder

_MOST = 50_000


class _Text(Struct, gc=False):
    """A sandbox's text, unchanged and in lower case. Keeps it alive. 10,000 tuples took 10 ms of each collection."""

    sandbox: Sandbox
    cased: str
    low: str


class _Texts:
    """The texts by object. Building 10,000 takes 12 ms, and looking them up 1 ms."""

    def __init__(self) -> None:
        self._made: dict[int, _Text] = {}
        self._last: tuple[Sequence[Sandbox], bool, list[str]] = ((), False, [])

    def make(self, sandbox: Sandbox) -> _Text:
        if len(self._made) >= _MOST:
            self._made.clear()
        ref = sandbox.ref
        parts = (sandbox.name, sandbox.image, sandbox.status, ref.backend, ref.host, ref.id, sandbox.maker)
        text = "\n".join(parts)
        low = text.lower()
        made = self._made[id(sandbox)] = _Text(sandbox, text, text if low == text else low)
        return made

    def of(self, sandbox: Sandbox, *, cased: bool) -> str:
        found = self._made.get(id(sandbox)) or self.make(sandbox)
        return found.cased if cased else found.low

    def all(self, sandboxes: Sequence[Sandbox], *, cased: bool) -> list[str]:
        if self._last[0] is not sandboxes or self._last[1] != cased:
            get, make = self._made.get, self.make
            every = [get(id(one)) or make(one) for one in sandboxes]
            found = [one.cased for one in every] if cased else [one.low for one in every]
            if len(found) < len(self._last[2]):  # the next word requests the whole fleet again
                return found
            self._last = (sandboxes, cased, found)
        return self._last[2]

    def forget(self, sandboxes: Iterable[Sandbox]) -> None:
        self._last = ((), False, [])
        if self._made:
            for sandbox in sandboxes:
                self._made.pop(id(sandbox), None)


_texts = _Texts()
forget_texts = _texts.forget
"""Release sandboxes that are gone or have been replaced."""


def text_of(sandbox: Sandbox, *, cased: bool) -> str:
    """Return a sandbox's searchable text: lines of its name, image, state and place, in lower case unless ``cased``."""
    return _texts.of(sandbox, cased=cased)


def found_in(sandboxes: Sequence[Sandbox], finder: Finder) -> Iterable[object]:
    """Return for each sandbox whether the finder matches it."""
    return finder.flags(_texts.all(sandboxes, cased=finder.cased))
