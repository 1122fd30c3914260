"""A backend that says what does not hold is caught by the suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider, calls
from sandbox_console.backends.bubblewrap.backend import BubblewrapBackend
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.testing.conformance import Profile, Rig
from sandbox_console.testing.conformance.walls import Walls
from sandbox_console.testing.permits import permit_maker

pytestmark = requires("bubblewrap")
CHECKS = (Walls.test_system_calls_are_filtered_for_all_that_runs_in_it,
          Walls.test_their_filter_is_left_out_or_relaxed_where_asked)  # fmt: skip


@pytest.fixture
async def rig(tmp_path: Path):
    [backend] = BubblewrapProvider.backends(BackendSettings(tmp_path / "bubblewrap", {}))
    assert isinstance(backend, BubblewrapBackend)
    await backend.open()
    async with permit_maker(tmp_path) as permit:
        made = Rig(
            backend, Profile("lies", lambda name: SandboxSpec(name, command=("sleep", "1000"))), permit, tmp_path
        )
        yield made
        await made.clean_up()
    await backend.close()


async def test_the_honest_one_passes(rig: Rig) -> None:
    for check in CHECKS:
        await check(Walls(), rig)


async def test_one_that_filters_nothing_and_says_that_it_does_is_caught(rig: Rig, monkeypatch) -> None:
    said = calls.word

    def word(spec: SandboxSpec) -> str:
        return "filtered" if said(spec) == "unfiltered" else said(spec)

    monkeypatch.setattr(calls, "word", word)
    monkeypatch.setattr(calls, "program", lambda _: b"")
    with pytest.raises(AssertionError, match="no filter holds"):
        await CHECKS[0](Walls(), rig)
    with pytest.raises(AssertionError):
        await CHECKS[1](Walls(), rig)


async def test_one_whose_filter_lets_namespaces_through_is_caught(rig: Rig, monkeypatch) -> None:
    from sandbox_console.backends.bubblewrap import launch

    real = launch.order

    def order(*args):
        asked = real(*args)
        asked["args"] = [one for one in asked["args"] if one != "--disable-userns"]
        return asked

    monkeypatch.setattr(launch, "order", order)
    whole = calls.seccomp.program
    monkeypatch.setattr(calls.seccomp, "program", lambda **asked: whole(**{**asked, "nested": True}))
    with pytest.raises(AssertionError, match="it makes user namespaces"):
        await CHECKS[0](Walls(), rig)


async def test_one_that_leaves_no_filter_out_is_caught(rig: Rig, monkeypatch) -> None:
    whole = calls.seccomp.program
    monkeypatch.setattr(calls, "program", lambda _: whole())
    with pytest.raises(AssertionError):
        await CHECKS[1](Walls(), rig)


async def test_one_that_relaxes_nothing_is_caught(rig: Rig, monkeypatch) -> None:
    monkeypatch.setattr(calls, "program", lambda spec: b"" if spec.seccomp else calls.seccomp.program())
    with pytest.raises(AssertionError, match="nested_userns makes none"):
        await CHECKS[1](Walls(), rig)
