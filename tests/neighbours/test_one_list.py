"""One list with bubblewrap, Docker and remote servers, of which one is frozen, one slow, and the others lie."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
from tests.neighbours.test_legacy import KEY, OldServer, running
from tests.neighbours.wrong_server import wrong_server
from tests.support.engine import IMAGE, docker_engine
from tests.support.require import missing

from sandbox_console.library import Console
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import open_console

__all__ = ["docker_engine"]
BAD = {"frozen": "frozen", "json": "bad json", "flood": "100 MB", "round": "redirect"}


@pytest.fixture
async def console(docker_engine, tmp_path, monkeypatch):
    if reason := missing("bubblewrap"):
        pytest.skip(f"bubblewrap: {reason}")
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", docker_engine.url)
    monkeypatch.setenv("LAB_KEY", KEY)
    (tmp_path / "home").mkdir(mode=0o700)
    async with AsyncExitStack() as stack:
        good, slow = [await stack.enter_async_context(running(OldServer())) for _ in range(2)]
        good.boxes["default", "of-the-good"] = slow.boxes["default", "of-the-slow"] = True
        slow.delay_s = 0.5
        lines = [
            "[backends.microsandbox]\nenabled = false\n[backends.podman]\nenabled = false",
            '[secrets.LAB]\nfrom = "env:LAB_KEY"',
        ]
        for name, old in (("good", good), ("slow", slow)):
            lines.append(f'[backends.microsandbox_legacy.servers.{name}]\nurl = "{old.url}"\nkey = "LAB"')
        for name, mode in BAD.items():
            wrong = await stack.enter_async_context(wrong_server(mode))
            table = f'servers.{name}]\nurl = "{wrong.url}"\nkey = "LAB"'
            lines += [f"[backends.{backend}.{table}" for backend in ("a2a", "opensandbox")]
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
        assert first[0] == seen == {"of-bubblewrap", "of-docker", "of-the-good", "of-the-slow"}
        assert first[1] == {"frozen"}, "only the frozen ones are waited for"
        for backend in ("a2a", "opensandbox"):
            for host in BAD:
                health = healths[backend, host]
                assert (health.ok, host in health.reason) == (False, True), health
        words = {host: healths["a2a", host].reason for host in BAD}
        assert "in time" in words["frozen"] or "answer" in words["frozen"]
        assert "cannot be read" in words["json"]
        assert "larger than" in words["flood"]
        assert "redirects" in words["round"]
        assert KEY not in str(healths)
