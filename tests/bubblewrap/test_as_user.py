from __future__ import annotations

import os

import pytest
from tests.support.as_user import REPO, run
from tests.support.require import requires

_PATHS = ("tests/bubblewrap", "tests/conformance/test_bubblewrap.py")


@pytest.mark.timeout(600)
@requires("user")
def test_all_of_it_as_an_ordinary_user() -> None:
    assert os.geteuid() == 0
    done = run(*(path for path in _PATHS if (REPO / path).exists()))
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
    assert " passed" in done.stdout
