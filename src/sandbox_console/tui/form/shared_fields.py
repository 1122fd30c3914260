"""What several specs have in common in each field, and how a change of it is made to each of them. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from sandbox_console.model.spec import SandboxSpec
from sandbox_console.model.spec_fields import BY_NAME, FIELDS, Kind, SpecField
from sandbox_console.tui.text.form_values import BREAK, TICKED, pairs, parse, texts_of, two_valued

NONE = "(none)"
"""Typed where values differ, it unsets the field of each."""

DIFFERS = "differs"
"""The text of a box that some have ticked and others not."""


class SharedField(Struct, frozen=True):
    """A field of several sandboxes.

    ``text`` is what all have: the value, or of a list or a table the entries that none lacks.

    ``others`` are the values, or the entries' names, that only some have, the most frequent first.
    """

    text: str
    others: tuple[str, ...] = ()


def shared_fields(specs: Sequence[SandboxSpec]) -> dict[str, SharedField]:
    """Return what specs have in common, by field. A name belongs to one sandbox, so it is left out."""
    texts = [texts_of(spec) for spec in specs]
    return {field.name: _shared(field, [one[field.name] for one in texts]) for field in FIELDS if field.name != "name"}


def with_changes(
    spec: SandboxSpec, typed: Mapping[str, str], shared: Mapping[str, SharedField]
) -> tuple[SandboxSpec, dict[str, str]]:
    """Return one spec with the texts that were typed for all, and the problems of texts that cannot be read.

    An entry that was added to a list or a table is added to that of the spec, and one that was removed is removed.
    """
    own = texts_of(spec)
    return parse({name: _own(BY_NAME[name], own[name], shared[name].text, text) for name, text in typed.items()}, spec)


def _shared(field: SpecField, texts: Sequence[str]) -> SharedField:
    if field.kind in (Kind.LIST, Kind.TABLE):
        counts = Counter(entry for text in texts for entry in dict.fromkeys(_entries(field, text)))
        common = [entry for entry, count in counts.items() if count == len(texts)]
        others = [entry for entry, _ in counts.most_common() if entry not in common]
        names = [entry.partition("=")[0] for entry in others] if field.kind is Kind.TABLE else others
        return SharedField(_joined(field, common), tuple(dict.fromkeys(names)))
    counts = Counter(texts)
    if len(counts) == 1:
        return SharedField(texts[0])
    if two_valued(field):
        return SharedField(DIFFERS, tuple("yes" if text == TICKED else "no" for text, _ in counts.most_common()))
    return SharedField("", tuple(text or NONE for text, _ in counts.most_common()))


def _own(field: SpecField, own: str, common: str, typed: str) -> str:
    """Return the text of one spec's field after what was typed for all."""
    if field.kind not in (Kind.LIST, Kind.TABLE):
        return "" if typed == NONE else typed
    try:
        before, after = _entries(field, common), _entries(field, typed)
    except ValueError:
        return typed  # it is read again, and its problem shown
    new = [entry for entry in after if entry not in before]
    gone = {entry for entry in before if entry not in after} | {entry for entry in _entries(field, own) if entry in new}
    if field.kind is Kind.TABLE:
        keys = {entry.partition("=")[0] for entry in new}
        gone |= {entry for entry in _entries(field, own) if entry.partition("=")[0] in keys}
    return _joined(field, [*(entry for entry in _entries(field, own) if entry not in gone), *new])


def _entries(field: SpecField, text: str) -> list[str]:
    """Return the entries of a list, or ``key=value`` of a table. Raises ValueError for a table that cannot be read."""
    if field.kind is Kind.LIST:
        return text.split()
    return [f"{key}={value}" for key, value in pairs(text.replace(BREAK, "\n")).items()]


def _joined(field: SpecField, entries: Sequence[str]) -> str:
    return (" ".join(entries) if field.kind is Kind.LIST else shlex.join(entries)).replace("\n", BREAK)
