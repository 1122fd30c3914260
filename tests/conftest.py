"""For all tests: a command carries itself out, and leaves no process behind; who tests its server turns it on."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections.abc import Iterator

import pytest
from tests.support.time_limit import pytest_collection_modifyitems, pytest_runtest_setup, pytest_terminal_summary

__all__ = ["pytest_collection_modifyitems", "pytest_runtest_setup", "pytest_terminal_summary"]

os.environ["SANDBOX_CONSOLE_SERVER"] = "off"
with contextlib.suppress(ImportError):  # an ordinary user's environment has no hypothesis
    from hypothesis import HealthCheck, settings

    # How long examples take to make says how busy the machine is, and nothing about what is tested.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")


# 7,000 collected tests are walked again at each full collection: of 19 tests of forms this took a sixth of the time.
gc.set_threshold(100_000, 10, 20)


def pytest_collection_finish() -> None:
    """What has been collected lives to the end: the garbage collector need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Chromium that all tests of this worker share; take a new context of it."""
    if not shutil.which("chromium"):
        pytest.skip("no chromium on PATH")
    from tests.support.chromium import running_chromium

    with running_chromium(tmp_path_factory.mktemp("chromium")) as address:
        yield address
