"""OpenEnv's own OpenCodeSessionFactory on sandboxes of ours, where a checkout of OpenEnv can be had.

No package on PyPI contains it: openenv-core 0.3.0 has the harness's base classes, in its wheel and its sdist, but not
opencode_env, nor has the repository's default branch. ``OPENENV_CHECKOUT=FOLDER`` names a checkout that has it, such as
meta-pytorch/OpenEnv at ae34dd71, on which these tests pass; test_openenv.py has the stand-in.
"""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace

import pytest
from tests.support.engine import busybox_tree
from tests.support.require import missing, openenv_checkout

from sandbox_console import sync
from sandbox_console.adapters import openenv

HOME = "/tmp/user"
AGENT = """#!/bin/sh
# stands in for the opencode program: it "solves" the task by upper-casing it, and says so as the real one does
[ "$1" = --version ] && { echo 1.0.0; exit 0; }
test -f "$OPENCODE_CONFIG" || exit 9
printf '%s' "$4" | tr a-z A-Z > answer
echo '{"type": "text", "key": "'"$OPENAI_API_KEY"'", "url": "'"$OPENAI_BASE_URL"'"}'
case "$4" in *slow*) exec sleep 1000 ;; esac
"""


class WithAgent:
    """A backend whose sandboxes have the agent already, as OpenEnv's prebuilt template has."""

    def __init__(self, inner: openenv.SandboxBackend) -> None:
        self.inner = inner
        self.made: list[openenv.SandboxHandle] = []

    def create(self, *, timeout_s=900, envs=None, metadata=None):
        box = self.inner.create(timeout_s=timeout_s, envs={"HOME": HOME, **(envs or {})}, metadata=metadata)
        box.write_text(f"{HOME}/.opencode/bin/opencode", AGENT)
        assert (
            box.exec(f"chmod +x {HOME}/.opencode/bin/opencode; mkdir -p {HOME}/workdir {HOME}/logs/agent").exit_code
            == 0
        )
        self.made.append(box)
        return box


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Its modules without their packages' ``__init__``, which import servers that need other packages."""
    if reason := missing("openenv"):
        pytest.skip(reason)
    there = openenv_checkout()
    before = set(sys.modules)
    for name, folder in (
        ("openenv", "src/openenv"), ("openenv.core", "src/openenv/core"),
        ("openenv.core.env_server", "src/openenv/core/env_server"), ("opencode_env", "envs/opencode_env"),
    ):  # fmt: skip
        package = ModuleType(name)
        package.__path__ = [str(there / folder)]
        monkeypatch.setitem(sys.modules, name, package)
    client = ModuleType("openai")  # of the language model's client, which this does not use
    monkeypatch.setattr(client, "AsyncOpenAI", object, raising=False)
    monkeypatch.setitem(sys.modules, "openai", client)
    from opencode_env import harness
    from opencode_env.sandbox import base

    yield SimpleNamespace(factory=harness.OpenCodeSessionFactory, config=harness.OpenCodeConfig, base=base)
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("openenv", "opencode_env"):
            sys.modules.pop(name, None)


@pytest.fixture
def image(backend: str, request: pytest.FixtureRequest) -> str:
    """On Docker one that has the agent where the factory looks for it, as it would install it with curl and bash."""
    if backend != "docker":
        return "host"
    tree = io.BytesIO(busybox_tree())
    with tarfile.open(fileobj=tree, mode="a") as tar:
        member = tarfile.TarInfo("home/user/.opencode/bin/opencode")
        member.size, member.mode = len(AGENT), 0o755
        tar.addfile(member, io.BytesIO(AGENT.encode()))
    engine = request.getfixturevalue("docker_engine")
    engine.docker("import", "-", name := "sandbox-console-test:opencode", stdin=tree.getvalue())
    return name


def test_its_factory_runs_an_agent_to_its_end(real, backend, image) -> None:
    with sync.open_console(backend=backend) as console:
        ours = WithAgent(openenv.SandboxBackend(console, image=image))
        assert isinstance(ours.inner, real.base.SandboxBackend)
        config = real.config(
            base_url="http://llm.example/v1", api_key="k-1", sandbox_home=HOME, system_prompt="be brief"
        )
        verdicts = []
        factory = real.factory(
            config=config, sandbox_backend=ours,
            verifier=lambda box, task: verdicts.append(box.read_text(f"{HOME}/workdir/answer")),
        )  # fmt: skip
        task = {
            "instruction": "do it",
            "setup_shell": "test -f /tmp/more/data",
            "upload_files": {"/tmp/more/data": "ü"},
        }
        session = factory.create(task, episode_id="e1")
        [box] = ours.made
        assert isinstance(box, real.base.SandboxHandle)
        assert isinstance(session._bg_job, real.base.BgJob)
        assert console.sandbox(box.sandbox_id).inspect().labels["episode_id"] == "e1"
        assert session.wait_for_completion(60) == 0
        assert session.fetch_trace() == '{"type": "text", "key": "k-1", "url": "http://llm.example/v1"}\n'
        session.verify([])
        assert verdicts == ["DO IT"]
        session.close()
        assert console.list()[0] == []


def test_an_agent_that_does_not_end_times_out_and_is_closed_with_its_sandbox(real, backend, image) -> None:
    with sync.open_console(backend=backend) as console:
        ours = WithAgent(openenv.SandboxBackend(console, image=image))
        config = real.config(base_url="http://llm.example/v1", sandbox_home=HOME)
        session = real.factory(config=config, sandbox_backend=ours).create("slow")
        with pytest.raises(TimeoutError):
            session.wait_for_completion(1)
        session.close()
        assert console.list()[0] == []


def test_a_setup_that_fails_is_its_error_and_leaves_nothing(real, backend, image) -> None:
    with sync.open_console(backend=backend) as console:
        ours = WithAgent(openenv.SandboxBackend(console, image=image))
        config = real.config(base_url="http://llm.example/v1", sandbox_home=HOME)
        factory = real.factory(config=config, sandbox_backend=ours)
        with pytest.raises(RuntimeError, match="setup_shell failed \\(3\\): no good"):
            factory.create({"instruction": "x", "setup_shell": "echo no good >&2; exit 3"})
        assert console.list()[0] == []
