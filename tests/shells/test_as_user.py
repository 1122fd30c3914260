from __future__ import annotations

import pytest
from tests.support.as_user import run
from tests.support.require import requires


@pytest.mark.slow
@pytest.mark.timeout(600)
@requires("user")
def test_kept_shells_as_an_ordinary_user() -> None:
    done = run("tests/shells/test_kept.py", "-k", "bubblewrap and (left_found or holder_that_is_killed)")
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
    assert "2 passed" in done.stdout
