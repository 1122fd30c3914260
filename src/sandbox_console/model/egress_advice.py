"""Finds likely mistakes in a list of egress patterns: too wide, repeated, or covered by another one."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from sandbox_console.model import hosts
from sandbox_console.model.hosts import HostPattern


def advice(patterns: Sequence[str]) -> tuple[str, ...]:
    """One sentence for each pattern that may be a mistake. Invalid patterns are skipped.

    A wildcard under a public suffix, such as ``*.com`` or ``*.github.io``, lets strangers' hosts through. The suffixes
    are those of publicsuffix.org, from the ``publicsuffixlist`` package; nothing is looked up online.
    """
    return tuple(_advice(list(_parsed(patterns))))


def notes_on(patterns: Sequence[str], *, allow_ip: bool = False) -> tuple[str, ...]:
    """The problem or possible mistake of each pattern; empty if there is none."""
    return tuple(_note(patterns, at, allow_ip=allow_ip) for at in range(len(patterns)))


def _note(patterns: Sequence[str], at: int, *, allow_ip: bool) -> str:
    try:
        pattern = hosts.parse(patterns[at], allow_ip=allow_ip)
    except ValueError as error:
        return f"✕ {error}"
    others = list(_parsed([one for index, one in enumerate(patterns) if index != at]))
    if any(other == pattern for _, other in _parsed(patterns[:at])):
        return "! it is in the list twice"
    if wider := next((one for one, other in others if other != pattern and hosts.covers(other, pattern)), ""):
        return f"! not needed: {wider} covers it"
    if pattern.wildcard and _public(pattern.host):
        return f"! too wide: every host under the public suffix {pattern.host} gets through, whoever owns it"
    covered = [one for one, other in others if other != pattern and hosts.covers(pattern, other)]
    return f"covers {', '.join(covered)}" if covered else ""


def _advice(parsed: Sequence[tuple[str, HostPattern]]) -> Iterator[str]:
    for index, (text, pattern) in enumerate(parsed):
        if pattern.wildcard and _public(pattern.host):
            yield f"{text} lets through every host under the public suffix {pattern.host}, whoever owns it"
        if any(pattern == before for _, before in parsed[:index]):
            yield f"{text} is in the list twice"
            continue
        wider = next((one for one, other in parsed if other != pattern and hosts.covers(other, pattern)), "")
        if wider:
            yield f"{text} is not needed: {wider} covers it"


def _parsed(patterns: Sequence[str]) -> Iterator[tuple[str, HostPattern]]:
    for text in patterns:
        try:
            yield text, hosts.parse(text, allow_ip=True)
        except ValueError:
            continue


def _public(suffix: str) -> bool:
    return bool(_suffixes().is_public(suffix))


@functools.cache
def _suffixes() -> Any:
    from publicsuffixlist import PublicSuffixList  # reads 300 KB in 50 ms, and only wildcards need it

    return PublicSuffixList()
