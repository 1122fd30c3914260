"""Kept shells on real backends, by the command and by the service."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Cli, cli
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import missing

__all__ = ["cli", "docker_engine"]


@pytest.fixture(params=["bubblewrap", "docker"])
def backend(request: pytest.FixtureRequest, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> str:
    if reason := missing(request.param):
        pytest.skip(reason)
    if request.param == "docker":
        monkeypatch.setenv("DOCKER_HOST", request.getfixturevalue("docker_engine").url)
        (cli.home / "config.toml").write_text("[backends.microsandbox]\nenabled = false\n")
    return request.param


@pytest.fixture
def box(cli: Cli, backend: str) -> Iterator[str]:
    image = IMAGE if backend == "docker" else "host"
    cli.ok("create", "box", "--image", image, "--backend", backend, "--", "sleep", "600")
    yield "box"
    cli("rm", "box", "--force")
