"""What takes a host of two processors, on one microVM of a machine that has them."""

from __future__ import annotations

import pytest
from tests.support.microvm.machine import DEAD, Machine
from tests.support.microvm.part import ENVIRONMENT, PYTEST, ROOT
from tests.support.require import requires

pytestmark = [requires("machine"), pytest.mark.timeout(600)]

TEST = "tests/microsandbox/test_real.py::test_cpus_are_added_and_taken_while_it_runs"


def test_cpus_change_live_on_two_processors(capfd) -> None:
    machine = Machine("processors", processors=2)
    try:
        for _ in range(3):  # with two processors the machine itself may die, as one of one never did
            machine.up()
            code = machine.run([*PYTEST, TEST], env=ENVIRONMENT, cwd=str(ROOT), timeout_s=150)
            if code != DEAD:
                break
        said = capfd.readouterr().out
        assert (code, "1 passed" in said) == (0, True), said[-3000:] + machine.console()[-1000:]
    finally:
        machine.remove()
