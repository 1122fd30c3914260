"""The console's definition of a sandbox's memory use."""

from __future__ import annotations

from collections.abc import Mapping


def used(usage: int, stat: Mapping[str, int]) -> int:
    """Bytes in use by a cgroup, as ``docker stats`` shows them: without the page cache that can be reclaimed.

    ``usage`` is memory.current (cgroup v2) or memory.usage_in_bytes (v1), ``stat`` the memory.stat beside it. From
    https://docs.docker.com/reference/cli/docker/container/stats/: usage minus ``inactive_file`` (v2) or
    ``total_inactive_file`` (v1).
    """
    cache = stat.get("total_inactive_file", stat.get("inactive_file", 0))
    return usage - cache if cache < usage else usage
