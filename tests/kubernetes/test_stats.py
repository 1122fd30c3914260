"""CPU and memory by metrics-server. Its answers are written from the API's documentation: it does not run here."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from msgspec import structs
from tests.kubernetes.recorded import recording

from sandbox_console.errors import Unsupported
from sandbox_console.model.capability import Capability

METRICS = "/apis/metrics.k8s.io/v1beta1"


def measured(second):
    usage = [("main", "250m", "64Mi"), ("side", "500000n", "1024Ki")]
    containers = [{"name": name, "usage": {"cpu": cpu, "memory": memory}} for name, cpu, memory in usage]
    return {"timestamp": f"2026-01-01T00:00:0{second}Z", "window": "15s", "containers": containers}


async def test_each_measurement_is_one_sample(make, server):
    pods = recording("pods")
    two = next(one for one in pods["items"] if one["metadata"]["name"] == "two")
    path = "/api/v1/namespaces/default/pods"
    namespace = two["metadata"]["namespace"]
    server.answers |= {path: pods, f"/api/v1/namespaces/{namespace}/pods/two": two, METRICS: {}}
    asked = []
    server.answers[f"{METRICS}/namespaces/{namespace}/pods/two"] = lambda _: (
        asked.append(1) or measured(1 if len(asked) < 3 else 2)
    )
    backend = await make(selector="run=causes")
    ref = next(one.ref for one in await backend.list() if one.name == "two")
    async with aclosing(backend.stats(ref, 0.01)) as samples:
        first, second = await anext(samples), await anext(samples)
    assert len(asked) == 3
    assert (first.cpu_percent, first.memory_bytes, first.memory_limit) == (pytest.approx(25.05), 65 << 20, None)
    assert second.at == first.at + 1
    async with aclosing(backend.stats(structs.replace(ref, container="side"), 0.01)) as samples:
        assert (await anext(samples)).memory_bytes == 1 << 20


async def test_without_metrics_server_it_is_unsupported_and_says_so(make, server):
    backend = await make()
    assert "no metrics-server" in backend.capabilities().reason(Capability.STATS)
    [ref, _] = [one.ref for one in await backend.list()]
    with pytest.raises(Unsupported, match="metrics-server"):
        await anext(backend.stats(ref, 1.0))
