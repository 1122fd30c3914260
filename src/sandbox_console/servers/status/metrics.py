"""A fleet as metrics in Prometheus' text format. No name, image or label of a sandbox is in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sandbox_console.model.sandbox import HealthState
from sandbox_console.service.fleet_status import FleetStatus
from sandbox_console.version import __version__

Key = TypeVar("Key", bound=tuple[str, ...])

PREFIX = "sandbox_console"
_PLACE = ("backend", "host")


def exposition(status: FleetStatus, sessions: int | None) -> bytes:
    """The metrics of a moment. ``sessions`` are those of the browser; None if no page is served."""
    registry = CollectorRegistry()
    registry.register(_Metrics(status, sessions))
    return generate_latest(registry)


class _Metrics(Collector):
    def __init__(self, status: FleetStatus, sessions: int | None) -> None:
        self._status, self._sessions = status, sessions

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        yield _gauge("info", "The version of the console.", (("version",), {(__version__,): 1}))
        yield from self._fleet()
        yield from self._records()
        if self._sessions is not None:
            yield _gauge("browser_sessions", "Sessions of the page that run.", ((), {(): self._sessions}))

    def _fleet(self) -> Iterator[Metric]:
        status = self._status
        used = (one for one in status.backends if one.state is not HealthState.UNAVAILABLE)
        up = {(one.backend, one.host): int(one.ok) for one in used}
        yield _gauge("backend_up", "Whether a backend that this machine has answers.", (_PLACE, up))
        states = Counter((one.ref.backend, one.ref.host, str(one.status)) for one in status.sandboxes)
        help_text = "Sandboxes by state; unknown if their backend does not answer."
        yield _gauge("sandboxes", help_text, ((*_PLACE, "state"), states))
        held = Counter((one.ref.backend, one.ref.host) for one in status.sandboxes if one.quarantine)
        yield _gauge("quarantined_sandboxes", "Sandboxes in quarantine.", (_PLACE, held))
        refused = CounterMetricFamily(f"{PREFIX}_denied_connections", "Connections that egress refused.", labels=_PLACE)
        for place, count in status.refusals.items():
            refused.add_metric(place, count)
        yield refused

    def _records(self) -> Iterator[Metric]:
        status = self._status
        done = CounterMetricFamily(
            f"{PREFIX}_actions", "Actions in the audit log that ended.", labels=("action", "outcome")
        )
        for key, count in status.actions.items():
            done.add_metric(key, count)
        yield done
        firing = Counter((one.rule, str(one.severity)) for one in status.alerts)
        yield _gauge("alerts_firing", "Alerts that fire.", (("rule", "severity"), firing))
        yield _gauge("audit_up", "Whether the audit log can be read and written.", ((), {(): not status.audit_problem}))
        yield _gauge("audit_rows", "The number of the newest row of the audit log.", ((), {(): status.audit_rows}))
        if status.unshipped is not None:
            help_text = "Rows of the audit log that have not reached its server."
            yield _gauge("audit_unshipped_rows", help_text, ((), {(): status.unshipped}))


def _gauge(name: str, help_text: str, values: tuple[Sequence[str], Mapping[Key, int]]) -> Metric:
    labels, each = values
    metric = GaugeMetricFamily(f"{PREFIX}_{name}", help_text, labels=labels)
    for key, value in each.items():
        metric.add_metric(key, float(value))
    return metric
