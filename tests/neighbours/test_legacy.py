"""The backend for legacy microsandbox servers, against a stand-in that speaks their JSON-RPC as its source has it."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.microsandbox_legacy import LegacyProvider
from sandbox_console.errors import BackendError, BackendUnreachable, ConfigError, Conflict, NotFound, Unsupported
from sandbox_console.hostfs.guest_writable import GuestFolders
from sandbox_console.model.action import Exec
from sandbox_console.model.event import Changed, HealthChanged, Listed, Removed
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef, Status
from sandbox_console.model.spec import SandboxSpec
from sandbox_console.service import open_console
from sandbox_console.testing.permits import permit

__all__ = ["permit"]
KEY = "canary-key-of-the-legacy-server"
SPEC = SandboxSpec("web", image="microsandbox/python", cpus=2.0, memory_mib=256, env={"A": "1"}, command=("sleep", "9"))


class OldServer:
    """What a server of 0.2 answers. With ``namespaces`` False, one of those that have none."""

    def __init__(self, namespaces: bool = True) -> None:
        self.namespaces, self.delay_s = namespaces, 0.0
        self.boxes: dict[tuple[str, str], bool] = {}
        self.asked: list[tuple[str, dict]] = []
        self.started = "Sandbox started successfully"
        self.url = ""

    async def rpc(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"error": "Invalid or expired token", "code": 1004}, status=401)
        await asyncio.sleep(self.delay_s)
        body = await request.json()
        method, params = body["method"], body["params"]
        self.asked.append((method, params))
        if not self.namespaces and "namespace" in params:
            return web.json_response({"error": "unknown field `namespace`", "code": 2001}, status=400)
        namespace, name = params.get("namespace", ""), params.get("sandbox", "")
        match method:
            case "sandbox.start":
                self.boxes[namespace, name] = self.started != "timed out waiting for it"
                return self._result(self.started)
            case "sandbox.stop":
                if (namespace, name) not in self.boxes:
                    return web.json_response({"error": "Internal server error", "code": 5002}, status=500)
                self.boxes[namespace, name] = False
                return self._result("stopped")
            case "sandbox.metrics.get":
                return self._metrics(namespace, name)
            case "sandbox.command.run":
                lines = [{"stream": "stdout", "text": "one"}, {"stream": "stderr", "text": "two"}]
                return self._result({"command": params["command"], "args": params["args"], "exit_code": 3,
                                     "success": False, "output": lines})  # fmt: skip
        error = {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": body["id"]}
        return web.json_response(error, status=404)

    def _metrics(self, namespace: str, name: str) -> web.Response:
        if namespace not in ("*", "") and all(there != namespace for there, _ in self.boxes):
            return web.json_response(
                {"error": f"Namespace directory '{namespace}' does not exist", "code": 2001}, status=400
            )
        rows = [
            {"name": one, "running": runs, "cpu_usage": 12.5, "memory_usage": 64, "disk_usage": None}
            | ({"namespace": there} if self.namespaces else {})
            for (there, one), runs in self.boxes.items()
            if namespace in ("*", "", there) and name in ("", one)
        ]
        return self._result({"sandboxes": rows})

    def _result(self, result: object) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "result": result, "id": 1})


@asynccontextmanager
async def running(old: OldServer) -> AsyncIterator[OldServer]:
    app = web.Application()
    app.router.add_post("/api/v1/rpc", old.rpc)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    old.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    try:
        yield old
    finally:
        await runner.cleanup()


@pytest.fixture
async def old():
    async with running(OldServer()) as one:
        yield one


def backend_of(old: OldServer, folder, key: str = KEY, **more):
    async def read(_: str) -> str:
        return key

    table = {"url": old.url, "key": "MSB", "no_network": True, **more}
    [backend] = LegacyProvider.backends(BackendSettings(folder, {"servers": {"lab": table}}, key=read))
    return backend


@pytest.fixture
async def backend(old, tmp_path):
    made = backend_of(old, tmp_path / "state")
    yield made
    await made.close()


async def create(backend, permit, spec=SPEC):
    return await backend.create(await permit("create"), spec, (), lambda _: None)


async def test_a_life_is_what_the_server_is_asked_for(old, backend, permit):
    ref = await create(backend, permit)
    assert (await backend.inspect(ref)).status is Status.CREATED
    assert not old.boxes, "a server has no sandbox that was not started"
    await backend.start(await permit("start"), ref, ())
    config = {"image": "microsandbox/python", "memory": 256, "cpus": 2, "envs": ["A=1"], "exec": "sleep 9"}
    assert ("sandbox.start", {"sandbox": "web", "namespace": "default", "config": config}) in old.asked
    found = await backend.inspect(ref)
    assert (found.status, found.spec, found.managed) == (Status.RUNNING, SPEC, True)
    await backend.stop(await permit("stop"), ref, 1)
    found = await backend.inspect(ref)
    assert (found.status, found.exit.code) == (Status.EXITED, None)
    with pytest.raises(Unsupported, match="no call that removes"):
        await backend.remove(await permit("remove"), ref, True)
    del old.boxes["default", "web"]  # as its owner does on the server's machine
    await backend.remove(await permit("remove"), ref, False)
    with pytest.raises(NotFound):
        await backend.inspect(ref)


async def test_what_others_started_is_shown_with_what_is_not_told_as_unknown(old, backend):
    old.boxes = {("team", "theirs"): True, ("default", "old"): False, ("default", "../evil/x"): True}
    rows = {one.name: one for one in await backend.list()}
    assert [rows[name].status for name in ("theirs", "old")] == [Status.RUNNING, Status.EXITED]
    assert not rows["theirs"].managed
    assert {fact.field: fact.value for fact in rows["theirs"].effective} == {
        "namespace": "team", "image": "unknown", "cpus": "unknown", "memory_mib": "unknown",
    }  # fmt: skip
    assert "/" not in rows["../evil/x"].ref.id


async def test_only_the_named_namespaces_are_shown(old, tmp_path):
    old.boxes = {("a", "one"): True, ("b", "two"): True, ("c", "three"): True}
    backend = backend_of(old, tmp_path, namespaces=["a", "b", "not-yet"])
    assert sorted(one.name for one in await backend.list()) == ["one", "two"]
    await backend.close()


async def test_a_server_without_namespaces_is_asked_without(tmp_path, permit):
    async with running(OldServer(namespaces=False)) as old:
        backend = backend_of(old, tmp_path, namespaces=[])
        ref = await create(backend, permit)
        await backend.start(await permit("start"), ref, ())
        assert (await backend.inspect(ref)).status is Status.RUNNING
        await backend.close()


async def test_a_command_is_run_and_its_streams_are_apart(old, backend, permit):
    ref = await create(backend, permit)
    with pytest.raises(Conflict):
        await backend.exec(await permit("exec"), Exec(ref, ("true",)), ())
    await backend.start(await permit("start"), ref, ())
    process = await backend.exec(await permit("exec"), Exec(ref, ("ls", "-l"), {"B": "2"}, "/tmp", timeout_s=7.0), ())
    assert [one async for one in process.output()] == [(Stream.STDOUT, b"one\n"), (Stream.STDERR, b"two\n")]
    assert (await process.wait()).code == 3
    method, params = old.asked[-1]
    assert (method, params["command"], params["timeout"]) == ("sandbox.command.run", "sh", 7)
    assert params["args"][2:] == ["/tmp", "B=2", "ls", "-l"]
    async for sample in backend.stats(ref, 0.01):
        assert (sample.cpu_percent, sample.memory_bytes) == (12.5, 64 << 20)
        break
    assert (await backend.raw(ref))["namespace"] == "default"


async def test_a_start_that_timed_out_on_the_server_is_waited_for(old, backend, permit):
    old.started = "timed out waiting for it"
    ref = await create(backend, permit)
    starting = asyncio.create_task(backend.start(await permit("start"), ref, ()))
    while ("default", "web") not in old.boxes:
        await asyncio.sleep(0.01)
    assert not starting.done()
    old.boxes["default", "web"] = True
    await starting


async def test_errors_are_told_apart_by_their_codes(old, backend, permit):
    with pytest.raises(NotFound):
        await backend.start(await permit("start"), SandboxRef(backend.name, backend.host, "no"), ())
    with pytest.raises(Unsupported, match="does not have it"):
        await backend._rpc.call("sandbox.other", {}, str)
    with pytest.raises(BackendError, match="code 5002"):
        await backend._rpc.call("sandbox.stop", {"sandbox": "no", "namespace": "default"}, str)


async def test_a_refused_key_is_told_and_read_again(old, tmp_path):
    backend = backend_of(old, tmp_path, key="another-key-of-somebody")
    with pytest.raises(BackendUnreachable, match="code 1004") as caught:
        await backend.list()
    assert "another-key" not in caught.value.message
    health = await backend.health()
    assert (health.state, backend._rpc._key._value) == ("unavailable", "")
    await backend.close()


async def test_without_a_word_about_the_network_nothing_is_created(old, tmp_path, permit):
    backend = backend_of(old, tmp_path, no_network=False)
    with pytest.raises(Unsupported, match="no_network = true"):
        await create(backend, permit)
    await backend.close()


async def test_2000_sandboxes_come_in_one_answer(old, backend):
    old.boxes = {(f"team-{number % 7}", f"sandbox-{number:04}"): bool(number % 2) for number in range(2000)}
    found = await backend.list()
    assert len({one.ref for one in found}) == 2000


async def test_a_watch_tells_changes_and_comes_back(old, backend, permit):
    backend._polling._every_s = 0.05
    events = backend.watch()
    async with asyncio.timeout(20):
        assert isinstance(await anext(events), HealthChanged)
        assert isinstance(await anext(events), Listed)
        old.boxes["default", "new"] = True
        event = await anext(events)
        assert isinstance(event, Changed)
        assert event.sandbox.name == "new"
        old.boxes.clear()
        assert isinstance(await anext(events), Removed)
        backend._rpc._key._value = "wrong-key-of-now"
        down, up = await anext(events), await anext(events)
        assert isinstance(down, HealthChanged)
        assert isinstance(up, HealthChanged)
        assert (down.health.ok, up.health.ok) == (False, True)
        assert isinstance(await anext(events), Listed)
    await events.aclose()


async def test_a_slow_server_is_asked_half_of_the_time_at_most(old, backend):
    old.delay_s = 0.1
    backend._polling._every_s = 0.0

    async def watch() -> None:
        async for _ in backend.watch():
            pass

    watching, began = asyncio.create_task(watch()), time.monotonic()
    await asyncio.sleep(1.0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert len(old.asked) <= (time.monotonic() - began) / 0.15


async def test_the_key_is_in_no_file_of_ours_and_what_is_kept_is_private(old, backend, permit, tmp_path):
    await create(backend, permit)
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert files
    for file in files:
        assert KEY not in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


# -- how it is found


CONFIG = """
[backends.docker]
enabled = false
[backends.bubblewrap]
enabled = false
[backends.microsandbox]
enabled = false
[backends.podman]
enabled = false
"""


async def test_the_console_reads_the_key_from_a_secret_and_masks_it(old, tmp_path, monkeypatch):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAB_KEY", KEY)
    (tmp_path / "home").mkdir(mode=0o700)
    table = f'[backends.microsandbox_legacy.servers.lab]\nurl = "{old.url}"\nkey = "LAB"\n'
    (tmp_path / "home/config.toml").write_text(CONFIG + table + '[secrets.LAB]\nfrom = "env:LAB_KEY"\n')
    old.boxes[f"x-{KEY}", "theirs"] = True
    async with open_console(only_backend="microsandbox_legacy") as console:
        rows, [health] = await console.list()
        assert health.ok, health.reason
        assert [fact.value for one in rows for fact in one.effective if fact.field == "namespace"] == ["x-[secret]"]


@pytest.mark.parametrize("by", ["environment", "file"])
async def test_the_environment_or_an_env_file_names_it_as_for_old_clients(old, tmp_path, monkeypatch, by):
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o700)
    old.boxes[f"x-{KEY}", "theirs"] = True
    if by == "environment":
        monkeypatch.setenv("MSB_SERVER_URL", old.url)
        monkeypatch.setenv("MSB_API_KEY", KEY)
        option = "environment = true"
    else:
        monkeypatch.delenv("MSB_SERVER_URL", raising=False)
        monkeypatch.delenv("MSB_API_KEY", raising=False)
        file = tmp_path / "home" / "old.env"
        file.write_text(f"# old\nexport MSB_SERVER_URL={old.url}\nMSB_API_KEY='{KEY}'\n")
        option = f'env_file = "{file}"'
    (tmp_path / "home/config.toml").write_text(f"{CONFIG}[backends.microsandbox_legacy]\n{option}\n")
    async with open_console(only_backend="microsandbox_legacy") as console:
        rows, [health] = await console.list()
        assert (health.ok, health.host, len(rows)) == (True, "environment", 1)
        rows, _ = await console.list()
        assert [fact.value for one in rows for fact in one.effective if fact.field == "namespace"] == ["x-[secret]"]


def test_an_env_file_that_others_can_write_is_refused(tmp_path):
    file = tmp_path / "shared.env"
    file.write_text("MSB_API_KEY=x\n")
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="not used"):
        LegacyProvider.backends(BackendSettings(tmp_path, {"env_file": str(file)}))
    with pytest.raises(ConfigError, match="absolute"):
        LegacyProvider.backends(BackendSettings(tmp_path, {"env_file": ".env"}))


@pytest.mark.parametrize("name", ["ws/old.env", "ws/link", "own/link"])
def test_an_env_file_that_a_guest_can_write_is_refused(tmp_path, name):
    """An ordinary user's guest has the user's uid, so the owner of the file proves nothing."""
    for folder in ("ws", "own"):
        (tmp_path / folder).mkdir()
    for place, to in (("ws", "own"), ("own", "ws")):
        (tmp_path / place / "old.env").write_text("MSB_API_KEY=x\n")
        (tmp_path / place / "old.env").chmod(0o600)
        (tmp_path / place / "link").symlink_to(tmp_path / to / "old.env")
    settings = BackendSettings(
        tmp_path, {"env_file": str(tmp_path / name)}, guests=lambda: GuestFolders.of([str(tmp_path / "ws")])
    )
    with pytest.raises(ConfigError, match="which a sandbox can write"):
        LegacyProvider.backends(settings)
