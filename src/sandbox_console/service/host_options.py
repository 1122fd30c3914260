"""The ``[hosts."PATTERN"]`` tables: groups, labels and limits of hosts, and which hosts a ``--host`` option means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Struct, field

from sandbox_console.errors import UsageError
from sandbox_console.model.did_you_mean import nearest
from sandbox_console.model.sandbox import HostKey

_LISTED = 12
"""How many hosts an error names."""


class HostOptions(Struct, frozen=True, kw_only=True):
    """What applies to the hosts that a pattern matches.

    ``timeout_s`` is how long each may take to answer a read, in seconds. ``max_running`` is how many sandboxes may run
    on each before it counts as full: then no sandbox is placed there unless the host is named.
    """

    groups: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    max_running: Annotated[int, msgspec.Meta(ge=1)] | None = None

    @property
    def words(self) -> list[str]:
        """The groups and the labels as ``--host`` takes them: ``web``, ``zone=eu``."""
        return [*self.groups, *(f"{key}={value}" for key, value in sorted(self.labels.items()))]


class HostTables:
    """The tables of a configuration. A host has what all the patterns that match it say; later tables win."""

    def __init__(self, tables: Mapping[str, HostOptions]) -> None:
        self._tables = tables
        self._known: dict[HostKey, HostOptions] = {}

    def of(self, key: HostKey) -> HostOptions:
        """Everything that is configured for a host."""
        if key not in self._known:
            self._known[key] = self._merged(key)
        return self._known[key]

    def _merged(self, key: HostKey) -> HostOptions:
        found = [table for pattern, table in self._tables.items() if _names(pattern, key)]
        groups = dict.fromkeys(group for table in found for group in table.groups)
        labels = {name: value for table in found for name, value in table.labels.items()}
        timeouts = [table.timeout_s for table in found if table.timeout_s is not None]
        limits = [table.max_running for table in found if table.max_running is not None]
        return HostOptions(
            groups=tuple(groups),
            labels=labels,
            timeout_s=timeouts[-1] if timeouts else None,
            max_running=limits[-1] if limits else None,
        )

    def unused(self, keys: Sequence[HostKey]) -> Iterator[str]:
        """The patterns that match no host, which may be misspelt."""
        return (pattern for pattern in self._tables if not any(_names(pattern, key) for key in keys))

    def chosen(self, keys: Sequence[HostKey], selectors: Iterable[str]) -> list[HostKey]:
        """The hosts that at least one selector means, in the order of ``keys``.

        A selector is KEY=VALUE for a label, else a pattern (``web*``) of a host's name, BACKEND/HOST or a group. Raises
        UsageError for one that means no host.
        """
        found: set[HostKey] = set()
        for selector in selectors:
            meant = {key for key in keys if self._means(selector, key)}
            if not meant:
                raise UsageError(f"--host {selector!r} matches no host", hint=self._hint(selector, keys))
            found |= meant
        return [key for key in keys if key in found]

    def _means(self, selector: str, key: HostKey) -> bool:
        options = self.of(key)
        label, equals, value = selector.partition("=")
        if equals:
            return label in options.labels and fnmatchcase(options.labels[label], value)
        return _names(selector, key) or any(fnmatchcase(group, selector) for group in options.groups)

    def _hint(self, selector: str, keys: Sequence[HostKey]) -> str:
        if near := nearest(selector, self.words(keys)):
            return f"did you mean {near!r}?"
        names = ["/".join(key) for key in keys]
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        return f"there is: {', '.join(names[:_LISTED])}{more}"

    def words(self, keys: Iterable[HostKey]) -> list[str]:
        """Everything that ``--host`` takes without a pattern: names, groups and labels, each once."""
        found = [word for key in keys for word in (key[1], "/".join(key), *self.of(key).words)]
        return list(dict.fromkeys(found))


def names_one(selector: str) -> bool:
    """Whether a selector is written as the name of a host or group, and not as a pattern or a label."""
    return not any(char in selector for char in "*?[=")


def problem(tables: Mapping[str, HostOptions]) -> tuple[str, str] | None:
    """The first key that cannot be used, and why; None if there is none."""
    for pattern, table in tables.items():
        for group in table.groups:
            if not group or not names_one(group) or "/" in group:
                return f'"{pattern}".groups', f"{group!r} is no name of a group: it may not be empty or have * ? [ = /"
        for label in table.labels:
            if not label or "=" in label:
                return f'"{pattern}".labels', f"{label!r} is no name of a label: it may not be empty or have ="
    return None


def _names(pattern: str, key: HostKey) -> bool:
    return fnmatchcase(key[1], pattern) or fnmatchcase("/".join(key), pattern)
