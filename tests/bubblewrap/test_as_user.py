from __future__ import annotations

import os

import pytest
from tests.support.as_user import run
from tests.support.require import requires


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", ["tests/bubblewrap", "tests/conformance/test_bubblewrap.py"])
@requires("user")
def test_all_of_it_as_an_ordinary_user(path: str) -> None:
    assert os.geteuid() == 0
    done = run(path, timeout_s=840)  # alone 100 s; a busy machine takes several times as long
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
    assert " passed" in done.stdout
