"""A sandbox of each backend that ssh is tried on, for tests that say the same of all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.conftest import CONFIG, Cli
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import missing

__all__ = ["backend", "box", "cli", "docker_engine"]

_IMAGES = {"bubblewrap": "host", "docker": IMAGE}


@pytest.fixture(params=list(_IMAGES))
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the backend. Its engine is private and runs."""
    if reason := missing(request.param):
        pytest.skip(reason)
    if request.param == "docker":
        monkeypatch.setenv("DOCKER_HOST", request.getfixturevalue("docker_engine").url)
    return str(request.param)


@pytest.fixture
def cli(cli: Cli, backend: str) -> Iterator[Cli]:
    """The command with this backend."""
    if backend == "docker":
        (cli.home / "config.toml").write_text(CONFIG.partition("[backends.microsandbox]")[1] + "\nenabled = false\n")
    yield cli
    for box in cli.json("ls", "--all"):
        cli.ok("rm", "--force", box["ref"])


@pytest.fixture
def box(cli: Cli, backend: str) -> str:
    """A running sandbox without a network."""
    cli.ok("create", "box", "--image", _IMAGES[backend], "--backend", backend, "--", "sleep", "1000")
    return "box"
