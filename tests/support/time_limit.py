"""A limit of time for a whole run of tests, for machines on which all of them would take hours.

``TESTS_UNTIL`` is when no further test begins, in seconds since the epoch. Those left are skipped with the reason, and
counted at the end. With ``TESTS_SAMPLED`` the files come in the order of a hash of the day and their name, so that each
day's run takes others.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

REASON = "not run: the time for the tests was over"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what would begin too late."""
    if time.time() > float(os.environ.get("TESTS_UNTIL", "inf")):
        pytest.skip(REASON)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Take the files in the day's order, each with its tests in their own."""
    if "TESTS_SAMPLED" in os.environ:
        items.sort(key=lambda item: _place(item.nodeid.partition("::")[0]))


def _place(file: str) -> str:
    day = os.environ.get("TESTS_DAY") or datetime.now(UTC).date().isoformat()
    return hashlib.sha256(f"{day} {file}".encode()).hexdigest()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many were left out."""
    stats: Mapping[str, list[Any]] = terminalreporter.stats
    left = sum(REASON in str(report.longrepr) for report in stats.get("skipped", []))
    if left:
        terminalreporter.write_line(f"== {left} tests were NOT RUN: the time for them was over")
