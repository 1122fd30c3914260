"""Rows in groups: by backend, host, image, maker, state or a label, with counts. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

from sandbox_console.errors import UsageError
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.sandbox import Sandbox, SandboxRef
from sandbox_console.model.text import clean
from sandbox_console.tui.fleet.fleet_rows import SandboxRow
from sandbox_console.tui.text.formatting import STATUS, maker
from sandbox_console.tui.widgets.table.table import Line, Paint

LABEL = "label:"
CYCLE = ("", "backend", "host", "image")
"""The fields that the key cycles through."""
_WORTH: dict[str, Callable[[Sandbox], str]] = {
    "backend": lambda sandbox: sandbox.ref.backend,
    "host": lambda sandbox: sandbox.ref.host,
    "image": lambda sandbox: sandbox.image,
    "maker": maker,
    "state": lambda sandbox: str(sandbox.status),
}


class GroupKey(NamedTuple):
    """One group: its field and value."""

    by: str
    value: str


class GroupRow(NamedTuple):
    """The head of a group: the number of sandboxes in each state, and of those whose state is not known now."""

    key: GroupKey
    folded: bool
    counts: tuple[tuple[str, int], ...]
    stale: int = 0

    @property
    def head(self) -> bool:
        return True

    def paint(self) -> Paint:
        name = self.key.by.removeprefix(LABEL)
        title = clean(self.key.value, cap=60) or f"no {name}"
        cells = [f"{'▸' if self.folded else '▾'} {title}", f"  {sum(count for _, count in self.counts) + self.stale}"]
        styles = ["", "dim"]
        for status, (glyph, style) in STATUS.items():
            if count := dict(self.counts).get(str(status)):
                cells.append(f"  {glyph} {count} {status}")
                styles.append(style)
        if self.stale:
            cells.append(f"  ? {self.stale} stale")
            styles.append("warn")
        return cells, styles

    def order(self, at: int, column: str) -> Any:  # noqa: ARG002 - heads are not sorted
        return None


def group_by(word: str) -> str:
    """Return what to group by: a known word, ``label:KEY``, or empty for no groups. Raises UsageError."""
    word = {"status": "state", "none": "", "off": ""}.get(word.lower(), word)
    if word.lower() in _WORTH or not word:
        return word.lower()
    if word.startswith(("label:", "label.", "label=")) and len(word) > len(LABEL):
        return LABEL + word[len(LABEL) :]
    near = nearest(word, (*_WORTH, "label:KEY"))
    hint = f"did you mean {near}?" if near else f"there are {', '.join(_WORTH)}, label:KEY and none"
    raise UsageError(f"nothing to group by is called {word!r}: {hint}", hint=hint)


def worth(by: str) -> Callable[[Sandbox], str]:
    """Return a function from a sandbox to the value that determines its group."""
    if by.startswith(LABEL):
        key = by.removeprefix(LABEL)
        return lambda sandbox: sandbox.labels.get(key, "")
    return _WORTH[by]


def grouped(sandboxes: Iterable[Sandbox], by: str, make: Callable[[Sandbox], SandboxRow],
            folded: Container[GroupKey], stale: Callable[[SandboxRef], bool] | None = None) -> list[Line]:  # fmt: skip
    """Return the heads in order of name, each with its rows unless folded. Sandboxes without a value come last.

    ``stale`` returns whether a sandbox's state is not known now.
    """
    value = worth(by)
    members: dict[str, list[Sandbox]] = {}
    for sandbox in sandboxes:
        members.setdefault(value(sandbox), []).append(sandbox)
    rows: list[Line] = []
    for name in sorted(members, key=lambda name: (not name, name.casefold())):
        key = GroupKey(by, name)
        rows.append(_head(key, members[name], closed := key in folded, stale))
        if not closed:
            rows += map(make, members[name])
    return rows


def _head(
    key: GroupKey, members: Sequence[Sandbox], folded: bool, stale: Callable[[SandboxRef], bool] | None
) -> GroupRow:
    heard = members if stale is None else [sandbox for sandbox in members if not stale(sandbox.ref)]
    found = Counter(map(_status, heard))
    counts = tuple((str(status), count) for status, count in found.items())
    return GroupRow(key, folded, counts, len(members) - len(heard))


def _status(sandbox: Sandbox) -> str:
    return sandbox.status
