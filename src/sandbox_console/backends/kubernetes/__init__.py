"""Sandboxes and Pods of Kubernetes clusters. Importing this package imports no SDK."""

from sandbox_console.backends.kubernetes.provider import KubernetesProvider

__all__ = ["KubernetesProvider"]
