from __future__ import annotations

import pytest
from tests.support.as_user import run
from tests.support.require import requires


@pytest.mark.timeout(600)
@requires("user")
def test_egress_as_an_ordinary_user() -> None:
    done = run(
        "tests/egress/test_bubblewrap.py", "-k", "hostile or works_with or killed or download or of_its_own or stale"
    )
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-5_000:]}"
    assert " passed" in done.stdout
