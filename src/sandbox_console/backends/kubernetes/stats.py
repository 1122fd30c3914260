"""CPU and memory of a Pod by metrics-server (metrics.k8s.io), which measures every 15 s or so.

It has no network, disk or process counts. A value has the time of its measurement, so that none is shown twice as new.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

import msgspec
from msgspec import field

from sandbox_console.backends.kubernetes.causes import seconds
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.diagnosis import METRICS
from sandbox_console.backends.kubernetes.finder import Finder
from sandbox_console.backends.kubernetes.inventory import Target
from sandbox_console.backends.kubernetes.objects import Camel
from sandbox_console.backends.kubernetes.quantities import number
from sandbox_console.errors import BackendError, NotFound
from sandbox_console.model.sandbox import SandboxRef, Stats


class _Usage(Camel, frozen=True):
    name: str = ""
    usage: Mapping[str, str | int | float] = field(default_factory=dict)


class _Metrics(Camel, frozen=True):
    timestamp: str | None = None
    containers: tuple[_Usage, ...] = ()


async def stats(cluster: Cluster, finder: Finder, ref: SandboxRef, interval_s: float) -> AsyncGenerator[Stats, None]:
    """A sample for each measurement, until the Pod has ended. A Pod that was not measured yet has none."""
    last = 0.0
    while True:
        target = await finder.target(ref)
        if target.pod is None or not finder.inventory.of(target).status.live:
            return
        sample = await _sample(cluster, target)
        if sample is not None and sample.at != last:
            last = sample.at
            yield sample
        await asyncio.sleep(interval_s)


async def _sample(cluster: Cluster, target: Target) -> Stats | None:
    pod = target.pod
    if pod is None:
        return None
    namespace, name = pod.metadata.namespace, pod.metadata.name
    await cluster.core("pods")  # logs in
    request = f"get pods.metrics.k8s.io {namespace}/{name}"
    try:
        data = await cluster.call("GET", f"{METRICS}/namespaces/{namespace}/pods/{name}", request)
        found = msgspec.json.decode(data, type=_Metrics)
    except NotFound:
        return None
    except msgspec.DecodeError as error:
        raise BackendError(f"{request}: the answer cannot be read: {error}") from None
    wanted = [one for one in found.containers if target.container in ("", one.name)]
    cpu, memory = (sum(number(one.usage.get(kind, "")) or 0.0 for one in wanted) for kind in ("cpu", "memory"))
    return Stats(
        seconds(found.timestamp) or 0.0, cpu_percent=cpu * 100, memory_bytes=int(memory), memory_limit=_limit(target)
    )


def _limit(target: Target) -> int | None:
    """The limit of memory of the containers that are counted; None if one of them has none."""
    containers = target.pod.spec.containers if target.pod is not None else ()
    limits = [
        number(((one.resources.limits if one.resources else None) or {}).get("memory", ""))
        for one in containers
        if target.container in ("", one.name)
    ]
    known = [one for one in limits if one is not None]
    return int(sum(known)) if known and len(known) == len(limits) else None
