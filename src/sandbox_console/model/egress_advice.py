"""Finds likely mistakes in a list of egress patterns: too wide, repeated, or covered by another one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sandbox_console.model import hosts
from sandbox_console.model.hosts import HostPattern

_NAMED = 5
"""The most patterns that a note names."""


def advice(patterns: Sequence[str]) -> tuple[str, ...]:
    """One sentence for each pattern that may be a mistake. Invalid patterns are skipped.

    A wildcard under a public suffix, such as ``*.com`` or ``*.github.io``, lets strangers' hosts through. The suffixes
    are those of publicsuffix.org, from the ``publicsuffixlist`` package; nothing is looked up online.
    """
    return tuple(_advice(_Parsed(patterns)))


def notes_on(patterns: Sequence[str], *, allow_ip: bool = False) -> tuple[str, ...]:
    """The problem or possible mistake of each pattern; empty if there is none."""
    parsed = _Parsed(patterns)
    return tuple(_note(parsed, at, allow_ip=allow_ip) for at in range(len(patterns)))


class _Parsed:
    """The patterns of a list, found by their hosts: comparing each with each takes minutes for a list of thousands."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        self.patterns = [_pattern(text) for text in texts]
        self.first: dict[HostPattern, int] = {}
        self._networks: list[int] = []
        self._of_host: dict[str, list[int]] = {}
        self._below: dict[str, list[int]] = {}
        for at, pattern in enumerate(self.patterns):
            if pattern is not None:
                self._add(at, pattern)

    def _add(self, at: int, pattern: HostPattern) -> None:
        self.first.setdefault(pattern, at)
        if pattern.network is not None:
            self._networks.append(at)
            return
        self._of_host.setdefault(pattern.host, []).append(at)
        for suffix in _suffixes_of(pattern.host):
            self._below.setdefault(suffix, []).append(at)

    def wider(self, pattern: HostPattern) -> str:
        """The first pattern that covers another one; empty if none does."""
        hosts_above = (pattern.host, *_suffixes_of(pattern.host))
        near = (at for host in hosts_above for at in self._of_host.get(host, ()))
        found = self._covering(self._networks if pattern.network is not None else near, lambda other: (other, pattern))
        return self.texts[found[0]] if found else ""

    def covered(self, pattern: HostPattern) -> list[str]:
        """Those that a pattern covers."""
        near = self._networks
        if pattern.network is None:
            near = [
                *self._of_host.get(pattern.host, ()),
                *(self._below.get(pattern.host, ()) if pattern.wildcard else ()),
            ]
        return [self.texts[at] for at in self._covering(near, lambda other: (pattern, other))]

    def _covering(
        self, near: Iterable[int], pair: Callable[[HostPattern], tuple[HostPattern, HostPattern]]
    ) -> list[int]:
        found = []
        for at in near:
            wide, narrow = pair(_known(self.patterns[at]))
            if wide != narrow and hosts.covers(wide, narrow):
                found.append(at)
        return sorted(found)


def _note(parsed: _Parsed, at: int, *, allow_ip: bool) -> str:
    pattern = parsed.patterns[at]
    if pattern is None or (pattern.network is not None and not allow_ip):
        return _problem(parsed.texts[at], allow_ip=allow_ip)
    if parsed.first[pattern] != at:
        return "! it is in the list twice"
    if wider := parsed.wider(pattern):
        return f"! not needed: {wider} covers it"
    if pattern.wildcard and _public(pattern.host):
        return f"! too wide: every host under the public suffix {pattern.host} gets through, whoever owns it"
    covered = parsed.covered(pattern)
    more = f" and {len(covered) - _NAMED} more" if len(covered) > _NAMED else ""
    return f"covers {', '.join(covered[:_NAMED])}{more}" if covered else ""


def _advice(parsed: _Parsed) -> Iterator[str]:
    for at, pattern in enumerate(parsed.patterns):
        if pattern is None:
            continue
        text = parsed.texts[at]
        if pattern.wildcard and _public(pattern.host):
            yield f"{text} lets through every host under the public suffix {pattern.host}, whoever owns it"
        if parsed.first[pattern] != at:
            yield f"{text} is in the list twice"
        elif wider := parsed.wider(pattern):
            yield f"{text} is not needed: {wider} covers it"


def _problem(text: str, *, allow_ip: bool) -> str:
    try:
        hosts.parse(text, allow_ip=allow_ip)
    except ValueError as error:
        return f"✕ {error}"
    return ""


def _pattern(text: str) -> HostPattern | None:
    try:
        return hosts.parse(text, allow_ip=True)
    except ValueError:
        return None


def _known(pattern: HostPattern | None) -> HostPattern:
    assert pattern is not None  # noqa: S101 - only those that can be read are found by their hosts
    return pattern


def _suffixes_of(host: str) -> Iterator[str]:
    """The names above a host, the nearest first."""
    while "." in host:
        host = host.partition(".")[2]
        yield host


def _public(suffix: str) -> bool:
    return bool(_suffixes().is_public(suffix))


@functools.cache
def _suffixes() -> Any:
    from publicsuffixlist import PublicSuffixList  # reads 300 KB in 50 ms, and only wildcards need it

    return PublicSuffixList()
