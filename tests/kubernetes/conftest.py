from __future__ import annotations

import pytest
from tests.kubernetes.recorded import serving
from tests.support.permits import permit

from sandbox_console.backends.kubernetes.backend import KubernetesBackend
from sandbox_console.backends.kubernetes.scope import Scope

__all__ = ["permit"]


@pytest.fixture
async def server():
    async with serving() as server:
        yield server


@pytest.fixture
async def make(server, tmp_path):
    """Makes opened backends on the recorded server."""
    made = []

    async def one(user=None, **fields):
        file = server.kubeconfig(tmp_path / "kubeconfig", user)
        backend = KubernetesBackend(Scope("rec", kubeconfig=file, **fields), tmp_path / "state")
        made.append(backend)
        await backend.open()
        return backend

    yield one
    for backend in made:
        await backend.close()
