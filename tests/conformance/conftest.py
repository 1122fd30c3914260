import pytest

pytest.register_assert_rewrite("sandbox_console.testing.conformance")

from tests.support.engine import docker_engine  # noqa: E402
from tests.support.podman import podman_engine  # noqa: E402

from sandbox_console.testing.conformance.report import pytest_runtest_logreport, pytest_terminal_summary  # noqa: E402

__all__ = ["docker_engine", "podman_engine", "pytest_runtest_logreport", "pytest_terminal_summary"]
