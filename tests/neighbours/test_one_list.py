"""One list with bubblewrap, Docker and six kinds of remote servers: good, frozen, slow and lying ones."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from tests.neighbours.a3s import bridge_stand_in
from tests.neighbours.hosted import daytona_stand_in, e2b_stand_in
from tests.neighbours.hosted.threaded import served
from tests.neighbours.test_legacy import KEY, OldServer, running
from tests.neighbours.wrong_server import wrong_server
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import missing

from sandbox_console.library import Console
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import open_console

__all__ = ["docker_engine"]
BAD = {"frozen": "frozen", "json": "bad json", "flood": "100 MB", "round": "redirect"}
REMOTE = ("a2a", "opensandbox", "e2b", "daytona")
NAMES = {"bubblewrap", "docker", "the-good", "the-slow", "e2b", "daytona", "a3s"}


def hosted(stack, folder):
    """The stand-ins of E2B, Daytona and A3S Box with one sandbox each; returns their tables."""
    e2b, daytona = e2b_stand_in.E2b(), daytona_stand_in.Daytona()
    e2b.boxes["a"] = e2b_stand_in.Box("a", {"templateID": e2b_stand_in.TEMPLATE, "metadata": {"name": "of-e2b"}})
    daytona.boxes["a"] = daytona_stand_in.Box("a", {"name": "of-daytona", "snapshot": daytona_stand_in.SNAPSHOT})
    there, here = (stack.enter_context(served(one.app())) for one in (e2b, daytona))
    folder.mkdir()
    a3s, program = stack.enter_context(bridge_stand_in.running(folder))
    asked = {"image": bridge_stand_in.IMAGE, "isolation": "microvm", "labels": {}, "env": {}, "name": "of-a3s"}
    a3s.boxes["a"] = bridge_stand_in.Box("a", asked, a3s.home)
    return (
        f'[backends.e2b.servers.good]\nurl = "{there}"\nsandboxes = "{there}"\nkey = "E2B"',
        f'[backends.daytona.servers.good]\nurl = "{here}/api"\ntoolbox = "{here}/toolbox"\nkey = "DAYTONA"',
        f'[backends.a3s.runtimes.good]\nbinary = "{program}"',
    )


@pytest.fixture
async def console(docker_engine, tmp_path, monkeypatch):
    if reason := missing("bubblewrap"):
        pytest.skip(f"bubblewrap: {reason}")
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    keys = {"LAB": KEY, "E2B": e2b_stand_in.KEY, "DAYTONA": daytona_stand_in.KEY}
    for name, key in keys.items():
        monkeypatch.setenv(f"{name}_KEY", key)
    (tmp_path / "home").mkdir(mode=0o700)
    async with AsyncExitStack() as stack:
        good, slow = [await stack.enter_async_context(running(OldServer())) for _ in range(2)]
        good.boxes["default", "of-the-good"] = slow.boxes["default", "of-the-slow"] = True
        slow.delay_s = 0.5
        lines = [
            "[backends.microsandbox]\nenabled = false\n[backends.podman]\nenabled = false",
            *(f'[secrets.{name}]\nfrom = "env:{name}_KEY"' for name in keys),
            *hosted(stack, tmp_path / "a3s"),
        ]
        for name, old in (("good", good), ("slow", slow)):
            lines.append(f'[backends.microsandbox_legacy.servers.{name}]\nurl = "{old.url}"\nkey = "LAB"')
        for name, mode in BAD.items():
            wrong = await stack.enter_async_context(wrong_server(mode))
            table = f'servers.{name}]\nurl = "{wrong.url}"\nkey = "LAB"'
            lines += [f"[backends.{backend}.{table}" for backend in REMOTE]
        (tmp_path / "home/config.toml").write_text("\n".join(lines))
        yield await stack.enter_async_context(open_console())


async def test_what_answers_is_shown_at_once_and_the_others_are_named(console):
    library = Console(console)
    async with (
        library.create(SandboxSpec("of-bubblewrap", image="host", command=("sleep", "99")), backend="bubblewrap"),
        library.create(SandboxSpec("of-docker", image=IMAGE, command=("sleep", "99")), backend="docker"),
    ):
        seen, healths, first = set(), {}, None
        async for (rows, told), waiting in console.list_as_answered(patience_s=1.0):
            seen |= {one.name for one in rows}
            healths |= {(health.backend, health.host): health for health in told}
            first = first or ({*seen}, {host for _, host in waiting})
        assert first is not None
        assert first[0] == seen == {f"of-{name}" for name in NAMES}
        assert first[1] == {"frozen"}, "only the frozen ones are waited for"
        for backend in REMOTE:
            for host in BAD:
                health = healths[backend, host]
                assert (health.ok, host in health.reason) == (False, True), health
        words = {host: healths["a2a", host].reason for host in BAD}
        assert "in time" in words["frozen"] or "answer" in words["frozen"]
        assert "cannot be read" in words["json"]
        assert "larger than" in words["flood"]
        assert "redirects" in words["round"]
        assert not [key for key in (KEY, e2b_stand_in.KEY, daytona_stand_in.KEY) if key in str(healths)]
