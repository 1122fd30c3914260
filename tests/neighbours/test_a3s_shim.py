"""A3S Box's own SDK against ``sandbox-console a3s-box`` on real bubblewrap, and the console's backend against it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from a3s_box import A3SBoxClient, A3SBoxError, Sandbox
from a3s_box.runtime import SUPPORTED_BRIDGE_OPERATIONS, _decode_response
from tests.support.require import requires

from sandbox_console.backends.a3s import A3sProvider
from sandbox_console.backends.base import BackendSettings
from sandbox_console.errors import ConsoleError
from sandbox_console.library import open_console
from sandbox_console.model.action import Exec
from sandbox_console.model.audit import AuditQuery
from sandbox_console.model.sandbox import Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.servers.a3s_box import bridge, host
from sandbox_console.servers.a3s_box.protocol import OPERATIONS, failure
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
SHIM = str(Path(sys.executable).with_name("sandbox-console-a3s-box"))
CONFIG = """
[a3s_box]
backend = "bubblewrap"
template = "sdk"
[templates.sdk]
image = "host"
[backends.docker]
enabled = false
[backends.podman]
enabled = false
[backends.microsandbox]
enabled = false
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    (folder / "config.toml").write_text(CONFIG)
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(folder))
    return folder


class Within:
    """The shim without a process of its own for each call, which takes most of the time."""

    def request(self, request):
        try:
            answer = asyncio.run(bridge._answer(json.dumps(request).encode(), None, "", (), read_only=False))
        except ConsoleError as error:
            answer = failure(error)
        return _decode_response(answer.decode(), "", 0)


def refusal(call, *words, **named) -> str:
    with pytest.raises(A3SBoxError) as caught:
        call(*words, **named)
    assert str(caught.value)
    return caught.value.code


def test_each_of_the_52_operations_is_answered_or_refused():
    assert OPERATIONS == SUPPORTED_BRIDGE_OPERATIONS
    answered = bridge._DOES.keys() | {"sdk_capabilities"}
    assert answered | host.REFUSED.keys() == set(OPERATIONS)
    assert not answered & host.REFUSED.keys()


def test_what_is_no_request_is_answered_in_the_protocol(home):
    for sent, code in ((b"{", "invalid_request"), (b'{"operation": "no_such"}', "invalid_request"),
                       (b'{"operation": "sandbox_inspect"}', "invalid_request"),
                       (b'{"operation": "image_push"}', "unavailable")):  # fmt: skip
        done = subprocess.run([SHIM, "sdk-bridge"], input=sent, capture_output=True, check=True)
        told = json.loads(done.stdout)
        assert (told["protocol_version"], told["ok"], told["error"]["code"]) == (4, False, code)


@requires("bubblewrap")
def test_the_sdks_own_program_runs_commands_and_moves_files(home):
    runtime = Within()
    with Sandbox.create(name="sdk", metadata={"team": "x"}, envs={"OWN": "1"}, runtime=runtime) as box:
        assert (box.generation, box.state, box.isolation) == (1, "running", "sandbox")
        ran = box.commands.run("echo $OWN $MORE; echo no >&2; exit 3", envs={"MORE": "2"}, request_id="r-1")
        assert (ran.stdout, ran.stderr, ran.exit_code, ran.request_id) == ("1 2\n", "no\n", 3, "r-1")
        assert box.script("echo last words\n").run().stdout == "last words\n"
        assert box.files.write("/tmp/a/b", b"\xff\x00").size == 2
        assert box.files.export("/tmp/a/b").data == b"\xff\x00"
        assert [one.name for one in box.files.list("/tmp/a")] == ["b"]
        box.files.rename("/tmp/a/b", "/tmp/a/c")
        assert (box.files.exists("/tmp/a/b"), box.files.stat("/tmp/a/c").size) == (False, 2)
        assert refusal(box.files.read, "/tmp/none") == refusal(box.files.remove, "/tmp/none") == "not_found"
        assert refusal(box.files.read, "relative") == "invalid_request"
        assert refusal(box.runtime_stats) == "unavailable"
        assert refusal(Sandbox.create, name="sdk", runtime=runtime) == "conflict"
    assert A3SBoxClient(runtime).list_sandboxes() == []


@requires("bubblewrap")
def test_it_is_found_by_the_variable_of_the_sdk(home, monkeypatch):
    monkeypatch.setenv("A3S_BOX_BINARY", SHIM)
    with Sandbox.create() as box:
        assert box.commands.run(["echo", "found"]).stdout == "found\n"


@requires("bubblewrap")
def test_a_life_by_generations_is_on_record(home):
    runtime = Within()
    client = A3SBoxClient(runtime)
    box = Sandbox.create(command=["sh", "-c", "echo up; sleep 1000"], name="life", runtime=runtime)
    old = Sandbox(box.id, box.generation, box.state, box.isolation, runtime)
    events = box.events()
    assert [one.kind for one in events.events][:2] == ["container-created", "container-started"]
    assert events.events[0].timestamp_unix_ns > 10**18
    assert [one.message for one in box.logs()] == ["up\n"]
    assert refusal(box.remove) == "invalid_request"
    box.stop()
    assert (box.state, box.generation) == ("stopped", 1)
    for _ in range(2):  # an operation that is sent again does nothing
        again = Sandbox(box.id, 1, "stopped", box.isolation, runtime)
        again.restart(operation_id="once")
        assert (again.generation, again.state) == (2, "running")
    for verb in (
        old.stop,
        old.kill,
        old.pause,
        lambda: old.commands.run("true"),
        lambda: old.files.read("/etc/passwd"),
    ):
        assert refusal(verb) == "conflict"
    found = client.get_sandbox("life")
    assert (found.id, found.status, found.image, found.active) == (box.id, "running", "host", True)
    again.kill()
    assert client.get_sandbox("life") is None
    found = asyncio.run(recorded())
    assert {one.attempt.actor.partition(":")[0] for one in found} == {"a3s-box"}
    assert {"create", "stop", "start", "remove"} <= {one.attempt.action for one in found}


async def recorded():
    async with open_console() as console:
        return await console.history(AuditQuery(limit=100))


@requires("bubblewrap")
async def test_the_consoles_backend_runs_on_its_own_shim(home, permit, tmp_path):
    options = {"runtimes": {"own": {"binary": SHIM}}}
    [backend] = A3sProvider.backends(BackendSettings(tmp_path / "state", options))
    ref = await backend.create(await permit("create"), SandboxSpec("both-ends", image="any"), (), lambda _: None)
    await backend.start(await permit("start"), ref, ())
    assert (await backend.inspect(ref)).status is Status.RUNNING
    process = await backend.exec(await permit("exec"), Exec(ref, ("sh", "-c", "printf '\\377'; exit 4")), ())
    assert [data async for _, data in process.output()] == [b"\xff"]
    assert (await process.wait()).code == 4
    assert "passwd" in [one.name for one in await backend.list_dir(ref, "/etc")]
    await backend.stop(await permit("stop"), ref, 1.0)
    await backend.start(await permit("start"), ref, ())
    entry = await backend._entry(ref)
    assert entry.more == {"generation": "2"}
    await backend.remove(await permit("remove"), ref, True)
    assert await backend.list() == []
