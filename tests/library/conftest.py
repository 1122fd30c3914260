from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.engine import IMAGE, docker_engine
from tests.support.podman import podman_engine
from tests.support.require import missing

from sandbox_console import Console, SandboxHandle, SandboxSpec, Secret, open_console

__all__ = ["docker_engine", "podman_engine"]

_numbers = itertools.count()
IMAGES = {"bubblewrap": "host", "docker": IMAGE, "podman": IMAGE}
ENGINES = {"docker": "DOCKER_HOST", "podman": "CONTAINER_HOST"}
EVERY = tuple(IMAGES)
"""What the adapters are tried on; the rest of the Python API is the same code on an engine of Podman's."""
CANARY = "canary-value-of-a-secret"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(params=["bubblewrap", "docker"])
def backend(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return chosen(request, monkeypatch)


def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The backend of a fixture's parameter, with an engine of our own."""
    if reason := missing(request.param):
        pytest.skip(reason)
    if variable := ENGINES.get(request.param):
        monkeypatch.setenv(variable, request.getfixturevalue(f"{request.param}_engine").url)
    return request.param


@pytest.fixture
def spec(backend: str) -> Callable[..., SandboxSpec]:
    """``spec("sh", "-c", ..., **fields)``: one that sleeps unless a command is given."""

    def one(*command: str, **fields: Any) -> SandboxSpec:
        name = f"lib{os.getpid()}-{next(_numbers)}"
        return SandboxSpec(name, image=IMAGES[backend], command=command or ("sleep", "1000"), **fields)

    return one


@pytest.fixture
async def console(backend: str) -> AsyncIterator[Console]:
    async with open_console(backend=backend, secrets={"GIVEN": Secret(CANARY)}) as made:
        yield made


@pytest.fixture
async def box(console: Console, spec: Callable[..., SandboxSpec]) -> AsyncIterator[SandboxHandle]:
    async with console.create(spec()) as made:
        yield made
