from __future__ import annotations

from tests.support.permits import permit
from tests.support.podman import podman_engine

__all__ = ["permit", "podman_engine"]
