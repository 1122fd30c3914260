from __future__ import annotations

from tests.cli.conftest import box, cli
from tests.support.engine import docker_engine

__all__ = ["box", "cli", "docker_engine"]
