"""Egress from inside real bubblewrap sandboxes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.egress import attempts, world
from tests.support.permits import MakePermit
from tests.support.require import requires

from sandbox_console.backends.base import BackendSettings
from sandbox_console.backends.bubblewrap import BubblewrapProvider
from sandbox_console.errors import ConfigError, Conflict, InvalidSpec, NotFound, Unsupported
from sandbox_console.model.action import Exec
from sandbox_console.model.capability import Capability
from sandbox_console.model.egress import Effect, EgressRecord, EgressRule
from sandbox_console.model.log import Stream
from sandbox_console.model.sandbox import SandboxRef
from sandbox_console.model.spec import SandboxSpec

pytestmark = requires("bubblewrap")
NAMES = ("good.example.com", "other.example.com", "a.wild.example.org", "evil.example.net", "wild.example.org")


class Box:
    """A running sandbox with egress."""

    def __init__(self, backend: Any, permit: MakePermit, ref: SandboxRef) -> None:
        self.backend, self.permit, self.ref = backend, permit, ref

    async def process(self, *argv: str, **fields: Any) -> Any:
        return await self.backend.exec(await self.permit("exec"), Exec(self.ref, argv, **fields), [])

    async def run(self, *argv: str, stdin: bytes = b"", **fields: Any) -> tuple[int, str]:
        process = await self.process(*argv, **fields)
        await process.write(stdin)
        await process.close_stdin()
        found = b"".join([data async for _, data in process.output()])
        return (await process.wait()).code, found.decode()

    async def put(self, *rules: str | EgressRule) -> None:
        made = [EgressRule(one) if isinstance(one, str) else one for one in rules]
        await self.backend.set_egress(await self.permit("egress"), self.ref, made)

    async def ask(self, host: str, port: int) -> Any:
        return await self.backend.probe_egress(await self.permit("probe"), self.ref, host, port)

    async def records(self) -> list[EgressRecord]:
        return [one async for one in self.backend.egress_records(self.ref, since=None, follow=False)]

    async def gateway(self) -> int:
        """The gateway's pid on this host."""
        [folder] = [str(path) for path in Path(self.backend._store.folder).glob(f"{self.ref.id}/egress")]
        return await soon(lambda: pid_of(folder), "a gateway runs")


def pid_of(folder: str) -> int | None:
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if folder.encode() in words and b"serve" in words:
                return int(entry.name)
    return None


async def soon(look: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[Any]:
    hosts = tmp_path / "hosts"
    lines = [f"127.0.0.1 {name}" for name in NAMES]
    lines += [f"{address} {name}" for name, [address] in attempts.REBINDING.items()]
    hosts.write_text("\n".join(lines))
    [made] = BubblewrapProvider.backends(BackendSettings(tmp_path / "state", {"egress_hosts": str(hosts)}))
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def make(backend: Any, permit: MakePermit) -> AsyncIterator[Callable[..., Awaitable[Box]]]:
    made: list[SandboxRef] = []

    async def one(*egress: str, start: bool = True, **fields: Any) -> Box:
        fields = {"command": ("sleep", "1000"), **fields}
        spec = SandboxSpec(f"box-{len(made)}", egress=egress, **fields)
        ref = await backend.create(await permit("create"), spec, [], lambda _: None)
        made.append(ref)
        if start:
            await backend.start(await permit("start"), ref, [])
        return Box(backend, permit, ref)

    yield one
    for ref in made:
        with contextlib.suppress(NotFound):
            await backend.remove(await permit("remove"), ref, force=True)


@pytest.fixture
def allowed(outside: tuple[world.Server, world.Server]) -> tuple[str, ...]:
    ports = [server.port for server in outside]
    names = ("good.example.com", "*.wild.example.org", "127.0.0.1")
    return tuple(f"{name}:{port}" for name in names for port in ports)


async def test_every_attempt_of_a_hostile_sandbox_fails_and_is_on_record(make, outside, allowed):
    secure, plain = outside
    neighbour = await make(*allowed)
    box = await make(*allowed, *attempts.REBINDING, *(f"{name}:{plain.port}" for name in attempts.REBINDING))
    await box.put(*(rule for rule in allowed if rule != f"127.0.0.1:{plain.port}"), *attempts.REBINDING,
                  *(f"{name}:{plain.port}" for name in attempts.REBINDING))  # fmt: skip
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 0))
        asked = {
            "proxy": "127.0.0.1", "secure": secure.port, "plain": plain.port, "hostip": "127.0.0.1",
            "unnamed": "127.0.0.2", "gateway": "127.0.0.1", "neighbour": "127.0.0.2", "udp": udp.getsockname()[1],
        }  # fmt: skip
        code, said = await box.run("python3", "-", json.dumps(asked), stdin=attempts.PROGRAM.encode())
    assert code == 0, said
    found = json.loads(said)
    assert found.pop("control").startswith("PASSED")
    assert len(found) >= 25
    assert {name: told for name, told in found.items() if told.startswith("PASSED")} == {}
    seen = {(one.host, one.reason) for one in await box.records() if not one.allowed}
    assert {name: pair for name, pair in attempts.RECORDED.items() if pair not in seen} == {}
    assert len(secure.seen) == 1, "only the control"
    assert plain.seen == []
    assert await neighbour.records() == []


async def test_no_network_in_a_rule_leads_to_the_hosts_loopback(make):
    """The gateway is in the host's network, where a server hears every address of it."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as hears:
        hears.setblocking(False)
        port = hears.getsockname()[1]
        box = await make(f"0.0.0.0/0:{port}", f"[::/0]:{port}")
        hosts = ("127.0.0.2", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]")
        _, said = await box.run("sh", "-c", "".join(f"curl -s -m 20 -g http://{host}:{port}/;" for host in hosts))
        assert said.count('"reason": "own_host"') == len(hosts)
        with pytest.raises(BlockingIOError):
            hears.accept()


CURL = "curl -sS -m 30 --cacert /workspace/ca.pem"
PYTHON = """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile="/workspace/ca.pem")
print(urllib.request.urlopen(sys.argv[1], context=context, timeout=30).read().decode())
"""
NODE = """
const http = require('http'), tls = require('tls'), fs = require('fs');
const [host, port] = process.argv[1].split(':'), proxy = new URL(process.env.HTTPS_PROXY);
http.request({host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: `${host}:${port}`})
  .on('connect', (answer, socket) => {
    const made = tls.connect({socket, servername: host, ca: fs.readFileSync('/workspace/ca.pem')}, () =>
      made.write(`GET / HTTP/1.1\\r\\nHost: ${host}\\r\\nConnection: close\\r\\n\\r\\n`));
    made.on('data', data => process.stdout.write(data));
  }).end();
"""


async def test_what_is_allowed_works_with_curl_python_and_node(make, outside, allowed, ca, tmp_path):
    secure, plain = outside
    work = shared_folder(ca)
    try:
        box = await make(*allowed, workspace=str(work))
        at, name = f"good.example.com:{secure.port}", "hello from good.example.com"
        code, said = await box.run("sh", "-c", f"{CURL} https://{at}/")
        assert (code, said) == (0, f"{name}:{secure.port}")
        assert await box.run("sh", "-c", f"{CURL} http://good.example.com:{plain.port}/") == (0, f"{name}:{plain.port}")
        assert (await box.run("sh", "-c", f"{CURL} -d abc http://a.wild.example.org:{plain.port}/"))[1] == "got 3 bytes"
        code, said = await box.run("python3", "-c", PYTHON, f"https://{at}/")
        assert (code, name in said) == (0, True), said
        if shutil.which("node", path="/usr/bin:/usr/local/bin"):
            code, said = await box.run("node", "-e", NODE, at)
            assert (code, name in said) == (0, True), said
        code, said = await box.run("sh", "-c", f"{CURL} http://evil.example.net/")
        assert json.loads(said)["hint"].endswith("egress allow box-0 evil.example.net")
    finally:
        shutil.rmtree(work)


def shared_folder(ca: Path) -> Path:
    """A workspace that a sandbox's user may write, with the CA's certificate."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="sc-egress-", dir="/var/tmp"))
    folder.chmod(0o777)
    shutil.copy(ca / "ca.pem", folder)
    (folder / "ca.pem").chmod(0o644)
    return folder


async def test_the_main_process_and_commands_know_the_way(make, allowed):
    box = await make(*allowed, command=("sh", "-c", "echo $HTTPS_PROXY $http_proxy $NO_PROXY; exec sleep 1000"))
    said = "http://127.0.0.1:3128"
    assert (await box.run("sh", "-c", "echo $https_proxy $HTTP_PROXY $no_proxy"))[1].split()[:2] == [said, said]
    none = await make()
    assert (await none.run("sh", "-c", "echo ${https_proxy-unset}"))[1] == "unset\n"


async def test_a_killed_gateway_lets_nothing_pass_and_returns(make, outside, allowed):
    _, plain = outside
    box = await make(*allowed)
    url = f"http://good.example.com:{plain.port}/"
    assert (await box.run("sh", "-c", f"curl -sS -m 30 {url}"))[0] == 0
    pid = await box.gateway()
    os.kill(pid, signal.SIGSTOP)  # the keeper lets it run on: a guest of the same user could do this
    os.kill(pid, signal.SIGKILL)
    assert (await box.run("sh", "-c", f"curl -sS -m 30 {url}"))[0] == 0  # it waited for the next one
    assert await box.gateway() != pid
    assert (await box.backend.egress(box.ref)).gateway == ""


async def test_while_no_gateway_runs_nothing_passes(make, outside, allowed, backend):
    """Its program is taken away, so that it cannot come back."""
    _, plain = outside
    box = await make(*allowed)
    pid = await box.gateway()
    folder = Path(backend._store.folder) / box.ref.id / "egress"
    folder.rename(folder.with_name("away"))
    try:
        os.kill(pid, signal.SIGKILL)
        code, said = await box.run("sh", "-c", f"curl -sS -m 3 http://good.example.com:{plain.port}/")
        assert code != 0, said
        assert plain.connections == 0
        assert "does not answer" in (await backend.egress(box.ref)).gateway
    finally:
        folder.with_name("away").rename(folder)
    assert await soon(lambda: answers(box), "it is back")


async def answers(box: Box) -> bool:
    return (await box.backend.egress(box.ref)).gateway == ""


@pytest.mark.parametrize("how", ["revoked", "denied", "expired"])
async def test_a_download_is_cut_when_its_rule_goes(make, outside, allowed, how):
    _, plain = outside
    box = await make(*allowed)
    rules = [EgressRule(one) for one in allowed]
    if how == "expired":
        until = time.time() + 3
        await box.put(
            EgressRule(f"good.example.com:{plain.port}", until=until, source="live"), f"127.0.0.1:{plain.port}"
        )
    process = await box.process("curl", "-sS", "-m", "60", f"http://good.example.com:{plain.port}/slow")
    output = process.output()
    stream, data = await anext(output)
    assert stream is Stream.STDOUT
    assert data
    if how == "revoked":
        await box.put()
    elif how == "denied":
        await box.put(*rules, EgressRule("*.example.com", Effect.DENY))
    async with asyncio.timeout(30):
        rest = [data async for stream, data in output if stream is Stream.STDERR]
    assert (await process.wait()).code in (18, 56), rest  # a partial file, a receive failure
    end = [one for one in await box.records() if one.ended]
    assert [one.reason for one in end] == ["revoked"]


async def test_the_rules_in_force_and_what_they_decide(make, outside, allowed):
    secure, _ = outside
    box = await make(*allowed)
    state = await box.backend.egress(box.ref)
    assert [(rule.pattern, rule.source) for rule in state.rules] == [(one, "spec") for one in allowed]
    assert (await box.ask("good.example.com", secure.port)).allowed
    assert (await box.ask("evil.example.net", 443)).reason == "not_allowed"
    await box.put(*allowed, "münchen.example.com")
    assert (await box.ask("xn--mnchen-3ya.example.com", 443)).rule == "münchen.example.com"
    assert (await box.ask("MÜNCHEN.example.com.", 443)).allowed
    await box.put(*allowed, EgressRule("evil.example.net", until=time.time() + 1000, source="live"))
    assert (await box.ask("evil.example.net", 443)).rule == "evil.example.net"
    assert (await box.backend.egress(box.ref)).rules[-1].source == "live"
    await box.put(EgressRule("evil.example.net", until=time.time() - 1))
    assert (await box.backend.egress(box.ref)).rules == ()
    assert secure.connections == 0
    assert await box.records() == []


async def test_rules_stay_over_a_restart_and_go_with_the_sandbox(make, allowed, permit, backend):
    box = await make(*allowed)
    await box.put("kept.example.com")
    await backend.rename(await permit("rename"), box.ref, "renamed")
    await backend.stop(await permit("stop"), box.ref, 0)
    assert "is not running" in (await backend.egress(box.ref)).gateway
    with pytest.raises(Conflict):
        await box.ask("kept.example.com", 443)
    await backend.start(await permit("start"), box.ref, [])
    assert (await box.ask("kept.example.com", 443)).allowed
    await box.run("sh", "-c", "curl -s http://evil.example.net/")
    assert [one.sandbox for one in await box.records()] == ["renamed"]
    pid = await box.gateway()
    await backend.remove(await permit("remove"), box.ref, force=True)
    await soon(
        lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(), "it has ended"
    )
    with pytest.raises(NotFound):
        await backend.egress(box.ref)


async def test_records_are_followed_while_they_come(make, allowed):
    box = await make(*allowed)
    found: list[str] = []

    async def follow() -> None:
        async for record in box.backend.egress_records(box.ref, since=None, follow=True):
            found.append(record.host)  # noqa: PERF401 - it is looked at meanwhile

    following = asyncio.create_task(follow())
    for name in ("one", "two"):
        await box.run("sh", "-c", f"curl -s http://{name}.example.net/")
        await soon(lambda name=name: f"{name}.example.net" in found, "it is seen")
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following
    assert found == ["one.example.net", "two.example.net"]


async def test_a_denial_is_allowed_from_the_screen(make, outside, tmp_path, monkeypatch):
    from tests.egress.screens import allow_from_a_denial

    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path / "home"))
    _, plain = outside
    box = await make(f"127.0.0.1:{plain.port}")
    await allow_from_a_denial(box, "good.example.com", plain.port)
    assert [request[0] for request in plain.seen] == [f"good.example.com:{plain.port}"]


async def test_one_without_egress_has_no_gateway_and_says_so(make, backend):
    assert backend.capabilities().has(Capability.EGRESS_ALLOWLIST)
    box = await make()
    assert (await backend.egress(box.ref)).rules == ()
    with pytest.raises(Unsupported, match="without egress"):
        await box.put("good.example.com")
    with pytest.raises(Unsupported, match="without egress"):
        await box.ask("good.example.com", 443)


async def test_the_gateway_is_a_user_of_its_own_and_knows_nothing_of_the_sandbox(make, allowed, permit, backend):
    box = await make(*allowed, env={"CANARY": "c4n4ry-value"})
    pid = await box.gateway()
    await box.ask("good.example.com", 443)  # it has given up root by now
    environ = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"c4n4ry" not in environ
    status = Path(f"/proc/{pid}/status").read_text()
    uids = {int(text) for text in status.partition("Uid:")[2].split("\n")[0].split()}
    assert len(uids) == 1
    guest = backend._store.get(box.ref.id).uid
    if guest is not None:
        assert uids.isdisjoint({0, guest})
        assert "CapEff:\t0000000000000000" in status
    links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    kept = [link for link in links if not link.startswith(("/dev/null", "socket:", "pipe:", "anon_inode:"))]
    assert all("/egress/" in link for link in kept), kept


async def test_a_stale_console_is_not_needed(make, allowed, tmp_path, permit):
    """The rules run out, and the gateway works, while no backend object is open."""
    box = await make(*allowed)
    await box.put(EgressRule("good.example.com", until=time.time() + 1.5))
    await box.backend.close()
    [again] = BubblewrapProvider.backends(BackendSettings(tmp_path / "state"))
    await again.open()
    other = Box(again, permit, box.ref)
    await soon(lambda: gone(other), "the rule has run out")
    await again.close()


async def gone(box: Box) -> bool:
    return not (await box.ask("good.example.com", 443)).allowed


async def test_what_cannot_be_a_rule_is_refused(make, allowed):
    box = await make(*allowed)
    with pytest.raises(InvalidSpec, match="scheme"):
        await box.put("https://good.example.com")
    assert len((await box.backend.egress(box.ref)).rules) == len(allowed)


async def test_damaged_rules_let_nothing_pass_and_are_told(make, outside, allowed, backend):
    _, plain = outside
    box = await make(*allowed)
    (Path(backend._store.folder) / box.ref.id / "egress/policy/policy.json").write_text("[")
    assert "cannot be read" in (await backend.egress(box.ref)).gateway
    assert (await box.run("curl", "-sS", "-m", "30", f"http://good.example.com:{plain.port}/"))[1].find("no_policy") > 0
    assert plain.connections == 0


async def test_a_hosts_file_that_is_not_there_is_named(tmp_path, permit):
    [backend] = BubblewrapProvider.backends(BackendSettings(tmp_path / "state", {"egress_hosts": "/nowhere/hosts"}))
    await backend.open()
    ref = await backend.create(
        await permit("create"), SandboxSpec("box", egress=("a.example.com",)), [], lambda _: None
    )
    with pytest.raises(ConfigError, match="/nowhere/hosts"):
        await backend.start(await permit("start"), ref, [])
    await backend.remove(await permit("remove"), ref, force=True)


async def test_denied_not_resolved_and_failed_are_three_outcomes(make):
    box = await make("nowhere.invalid:80", "good.example.com:1", "127.0.0.1:1")
    names = ("evil.example.net", "nowhere.invalid", "good.example.com:1")
    for name in names:
        await box.run("sh", "-c", f"curl -sS -m 30 http://{name}/")
    assert [(one.host, str(one.outcome)) for one in await box.records()] == [
        ("evil.example.net", "denied"),
        ("nowhere.invalid", "unresolved"),
        ("good.example.com", "failed"),
    ]
