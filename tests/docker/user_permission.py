"""Run as an ordinary user by test_faults.py, with DOCKER_HOST at a socket of root's."""

from __future__ import annotations

import os

import pytest

from sandbox_console.backends.docker.backend import DockerBackend
from sandbox_console.errors import BackendUnreachable
from sandbox_console.model.sandbox import HealthState


async def test_permission_denied_names_the_group() -> None:
    assert os.geteuid() != 0
    backend = DockerBackend("default")
    await backend.open()
    health = await backend.health()
    assert health.state is HealthState.UNREACHABLE
    assert "permission denied" in health.reason
    assert "group docker" in health.hint
    with pytest.raises(BackendUnreachable, match="permission denied"):
        await backend.list()
    await backend.close()
