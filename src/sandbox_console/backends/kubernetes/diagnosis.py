"""Health and ``doctor``: the server, agent-sandbox, and what RBAC allows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from sandbox_console.backends.kubernetes import access
from sandbox_console.backends.kubernetes.access import Right
from sandbox_console.backends.kubernetes.capabilities import RIGHTS
from sandbox_console.backends.kubernetes.cluster import Cluster
from sandbox_console.backends.kubernetes.failures import Forbidden, Unusable
from sandbox_console.backends.kubernetes.objects import GROUP, VERSION
from sandbox_console.backends.kubernetes.translate import BACKEND
from sandbox_console.errors import BackendUnreachable, ConsoleError, NotFound
from sandbox_console.model.sandbox import BackendHealth, Diagnosis, HealthState

PROBE_S = 3.0
METRICS = "/apis/metrics.k8s.io/v1beta1"
_NO_AGENT_SANDBOX = "agent-sandbox is not installed in this cluster, and no selector names Pods to show"
_NO_AGENT_HINT = 'install it (agent-sandbox.sigs.k8s.io), or set [backends.kubernetes] selector = "app=NAME"'
_SHOWN = 5


class _Version(Struct):
    git_version: str = msgspec.field(default="", name="gitVersion")


class Server(Struct, frozen=True):
    """A server's version, and whether it serves Sandboxes."""

    version: str
    agent_sandbox: bool
    metrics: bool = False

    @property
    def minor(self) -> int:
        """The 30 of v1.30.2; 0 if it is not told."""
        parts = self.version.split(".")
        return int(parts[1]) if len(parts) > 1 and parts[1].isdecimal() else 0


async def server(cluster: Cluster) -> Server:
    """Ask a server what it is. Raises BackendUnreachable."""
    (version, group, metrics) = await asyncio.gather(
        cluster.call("GET", "/version", "get version", timeout_s=PROBE_S),
        _serves(cluster, f"/apis/{GROUP}/{VERSION}"),
        _serves(cluster, METRICS),
    )
    try:
        return Server(msgspec.json.decode(version, type=_Version).git_version, group, metrics)
    except msgspec.DecodeError:
        raise Unusable(
            f"what answers for context {cluster.scope.context!r} is no Kubernetes API server",
            hint=f"see its address: kubectl --context {cluster.scope.context} cluster-info",
        ) from None


async def _serves(cluster: Cluster, path: str) -> bool:
    try:
        await cluster.call("GET", path, f"get {path}", timeout_s=PROBE_S)
    except NotFound:
        return False
    except BackendUnreachable:
        if path == METRICS:  # its API service is registered, and does not answer
            return False
        raise
    except Forbidden:  # a cluster without discovery for everyone: the list will tell
        return True
    return True


async def health(cluster: Cluster) -> BackendHealth:
    """Whether the server answers, and why not. Raises nothing but CancelledError."""
    try:
        found = await server(cluster)
    except ConsoleError as error:
        return down(cluster, error)
    host = cluster.scope.host
    if not found.agent_sandbox and not cluster.scope.selector:
        return BackendHealth(
            BACKEND, host, HealthState.UNAVAILABLE, _NO_AGENT_SANDBOX, _NO_AGENT_HINT, version=found.version
        )
    return BackendHealth(BACKEND, host, HealthState.OK, version=found.version)


def down(cluster: Cluster, error: ConsoleError) -> BackendHealth:
    """The health for an error."""
    unusable = isinstance(error, (Unusable, Forbidden))
    state = HealthState.UNAVAILABLE if unusable else HealthState.UNREACHABLE
    return BackendHealth(BACKEND, cluster.scope.host, state, error.message, error.hint, silent=not unusable)


async def look(cluster: Cluster) -> Sequence[Diagnosis]:
    """All findings. Raises nothing but CancelledError."""
    try:
        found = await server(cluster)
    except ConsoleError as error:
        return [Diagnosis("server", "problem", error.message, error.hint)]
    lacking = await access.missing(cluster, (*RIGHTS, access.LIST_PODS, access.LIST_BOXES))
    where = "all namespaces" if cluster.scope.namespace == "*" else f"namespace {cluster.namespace}"
    return [
        Diagnosis("server", "ok", f"{found.version}, {where}"),
        _agent_sandbox(cluster, found),
        _rights(lacking, where),
    ]


def _agent_sandbox(cluster: Cluster, found: Server) -> Diagnosis:
    if found.agent_sandbox:
        return Diagnosis("agent-sandbox", "ok", f"{GROUP}/{VERSION} is served")
    if cluster.scope.selector:
        return Diagnosis("agent-sandbox", "ok", f"not installed; Pods with {cluster.scope.selector} are shown")
    return Diagnosis("agent-sandbox", "warning", _NO_AGENT_SANDBOX, _NO_AGENT_HINT)


def _rights(lacking: frozenset[Right], where: str) -> Diagnosis:
    if not lacking:
        return Diagnosis("rbac", "ok", "all that the console asks for is allowed")
    names = sorted(map(str, lacking))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    text = f"you may not {', '.join(names[:_SHOWN])}{more} in {where}"
    return Diagnosis("rbac", "warning", text, "a Role with these rights is in docs/kubernetes.md")
