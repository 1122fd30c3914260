"""A plugin of pytest's: every n-th test, by SHARD=K/N. The tests of all K together are all tests, each once."""

from __future__ import annotations

import os

import pytest


@pytest.hookimpl(tryfirst=True)  # before --deselect, which would shift the others
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the other machines run."""
    number, _, of = os.environ.get("SHARD", "0/1").partition("/")
    mine = items[int(number) :: int(of)]
    others = [item for item in items if item not in set(mine)]
    if others:
        config.hook.pytest_deselected(items=others)
    items[:] = mine
