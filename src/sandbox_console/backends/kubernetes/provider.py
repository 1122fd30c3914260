"""The entry point: one backend for each context and namespace that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from msgspec import structs

from sandbox_console.backends.base import Backend, BackendSettings
from sandbox_console.backends.common.options import check_known, host_names
from sandbox_console.backends.kubernetes.scope import ALL_NAMESPACES, Scope
from sandbox_console.errors import ConfigError

_OPTIONS = ("contexts", "namespaces", "selector", "kubeconfig", "network_policy")


class KubernetesProvider:
    """The entry point. Options: ``contexts``, ``namespaces``, ``selector``, ``kubeconfig`` and ``network_policy``.

    ``contexts`` are names of the kubeconfig, or ``in-cluster`` for a console in a Pod; without it the backend is off.
    ``namespaces`` are names, or ``["*"]`` for all in one list; without it, that of the context. ``selector`` is a label
    selector of Pods that are shown beside the Sandboxes; without it no other Pods are. ``kubeconfig`` is a file, if it
    is not what ``KUBECONFIG`` names or ~/.kube/config. ``network_policy`` says that the clusters' network enforces
    NetworkPolicy; without it nothing can be created, as a sandbox without egress would not be one.
    """

    name: ClassVar[str] = "kubernetes"
    hosts_option: ClassVar[str] = "contexts"
    absent_hint: ClassVar[str] = 'name its contexts: [backends.kubernetes] contexts = ["NAME"]'

    @classmethod
    def backends(cls, settings: BackendSettings) -> Sequence[Backend]:
        """One backend per context and namespace. Raises ConfigError. Uses no network and imports no SDK."""
        check_known(cls.name, settings.options, _OPTIONS)
        scopes = [structs.replace(scope, guests=settings.guests) for scope in _scopes(settings.options)]
        if not scopes:
            return []
        from sandbox_console.backends.kubernetes.backend import KubernetesBackend

        return [KubernetesBackend(scope, settings.state_dir) for scope in scopes]


def _scopes(options: Mapping[str, Any]) -> list[Scope]:
    contexts = host_names(KubernetesProvider.name, options, "contexts", "kind-dev") or []
    namespaces = host_names(KubernetesProvider.name, options, "namespaces", "agents") or [""]
    if ALL_NAMESPACES in namespaces and len(namespaces) > 1:
        raise ConfigError('kubernetes: namespaces is either ["*"] or a list of names', hint="leave the others out")
    file = _text(options, "kubeconfig")
    selector = _text(options, "selector")
    path = Path(file).expanduser() if file else None
    several = len(namespaces) > 1
    enforced = options.get("network_policy", False)
    if not isinstance(enforced, bool):
        raise ConfigError(
            "kubernetes: network_policy is true or false", hint="true if the cluster's network enforces it"
        )
    return [
        Scope(context, namespace, selector, path, several, enforced) for context in contexts for namespace in namespaces
    ]


def _text(options: Mapping[str, Any], option: str) -> str:
    value = options.get(option, "")
    if not isinstance(value, str):
        raise ConfigError(f"kubernetes: {option} is a text", hint='for example selector = "app=agent"')
    return value
