"""What one backend shows: a context of a kubeconfig and a namespace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from sandbox_console.hostfs.guest_writable import GuestFolders

ALL_NAMESPACES = "*"
IN_CLUSTER = "in-cluster"
"""The context's name for the cluster that the console itself runs in."""


class Scope(Struct, frozen=True):
    """One context and namespace. An empty ``namespace`` is the context's own; ``kubeconfig`` None is the usual file.

    ``several`` says that the configuration names several namespaces, so the host's name contains the namespace.
    ``network_policy`` says that the cluster's network enforces NetworkPolicy, which its API does not tell. ``guests``
    reads which folders of this machine guests can change.
    """

    context: str
    namespace: str = ""
    selector: str = ""
    kubeconfig: Path | None = None
    several: bool = False
    network_policy: bool = False
    guests: Callable[[], GuestFolders] = GuestFolders

    @property
    def host(self) -> str:
        """The backend's host: the context, or ``CONTEXT/NAMESPACE``."""
        return f"{self.context}/{self.namespace}" if self.several else self.context
