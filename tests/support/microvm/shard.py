"""A plugin of pytest's: every n-th test, by SHARD=K/N. The tests of all K together are all tests, each once.

A failure is told at once: a machine that dies, or runs out of time, never comes to pytest's own summary.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

_config: list[pytest.Config] = []


def pytest_configure(config: pytest.Config) -> None:
    """Keep what leads to the terminal."""
    _config.append(config)


@pytest.hookimpl(trylast=True)  # after the word FAILED
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell a failure in the repository's own lines."""
    if report.failed:
        said = [line for line in _own(report.longreprtext) if line.strip()]
        _config[0].get_terminal_writer().write("\n" + "\n".join(said) + "\n")


def _own(text: str) -> Iterator[str]:
    """A traceback without the frames of installed packages."""
    ours = True
    for line in text.splitlines():
        if line.startswith('  File "'):
            ours = "/.venv/" not in line and "/lib/python" not in line
        elif not line.startswith("    "):
            ours = True
        if ours and not line.startswith("Traceback "):
            yield line


@pytest.hookimpl(tryfirst=True)  # before --deselect, which would shift the others
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the other machines run."""
    number, _, of = os.environ.get("SHARD", "0/1").partition("/")
    mine = items[int(number) :: int(of)]
    others = [item for item in items if item not in set(mine)]
    if others:
        config.hook.pytest_deselected(items=others)
    items[:] = mine
