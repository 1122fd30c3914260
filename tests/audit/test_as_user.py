from __future__ import annotations

import pytest
from tests.support.as_user import run
from tests.support.require import requires


@pytest.mark.timeout(600)
@requires("user")
def test_a_read_only_log_as_an_ordinary_user() -> None:
    done = run("tests/audit/test_faults.py", "-k", "read_only")
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
    assert "1 passed" in done.stdout
