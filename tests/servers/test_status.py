"""/status, /status.json and /metrics, by processes and tokens of their own."""

from __future__ import annotations

import asyncio
import base64
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.browser.serving import eventually
from tests.servers.serving import SECRET, Home, Server, serving

from sandbox_console.model.audit import Outcome
from sandbox_console.model.event import Denied, HealthChanged
from sandbox_console.model.sandbox import BackendHealth, Exit, HealthState, Sandbox, SandboxRef, Status
from sandbox_console.servers.status.metrics import exposition
from sandbox_console.servers.status.page import as_json, page
from sandbox_console.service import Config, open_console
from sandbox_console.service.fleet_status import FleetStatus, StatusWatch
from sandbox_console.testing.fake_backend import FakeBackend

PATHS = ("/status", "/status.json", "/metrics")
HOSTILE = 'a"b\\c\nd\x1b]0;x\x07<script>alert(1)</script>&amp;'
REF = SandboxRef("docker", "default", "0123456789ab")


@pytest.fixture(scope="module")
def status_token(home: Home) -> str:
    return home.token("prometheus", "status")


@pytest.fixture(scope="module")
def status_server(home: Home, status_token: str) -> Iterator[Server]:
    with serving(home, "--status", "--no-page", what="status") as running:
        running.url = running.url.removesuffix("/status")
        yield running


def samples(text: str) -> dict[tuple[str, ...], float]:
    """(name, label values ...) to value, as Prometheus' own parser reads them."""
    return {
        (sample.name.removeprefix("sandbox_console_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_happens_is_seen(home: Home, status_server: Server, status_token: str) -> None:
    head = {"Authorization": f"Bearer {status_token}"}
    home.run("create", "fails", "--image", "host", "--", "sh", "-c", "exit 3")
    home.run("create", "runs", "--image", "host", "--", "sleep", "1000")
    try:
        assert home.run("wait", "fails").returncode == 0
        async with aiohttp.ClientSession(status_server.url, headers=head) as session:

            async def text(path: str) -> str:
                async with session.get(path) as answer:
                    assert answer.status == 200
                    return await answer.text()

            async with asyncio.timeout(30):
                while ("sandboxes", "bubblewrap", "local", "exited") not in (found := samples(await text("/metrics"))):
                    await asyncio.sleep(0.1)
            assert found["sandboxes", "bubblewrap", "local", "running"] == 1
            assert found["backend_up", "bubblewrap", "local"] == 1
            assert found["actions_total", "create", Outcome.OK] == 2
            assert found["audit_up",] == 1
            assert found["audit_rows",] >= 4
            assert "browser_sessions" not in {name for name, *_ in found}
            async with session.get("/status.json") as answer:
                told = await answer.json()
            assert [(one["name"], one["trouble"], one["exit"]) for one in told["sandboxes"]] == [
                ("fails", True, 3), ("runs", False, None),
            ]  # fmt: skip
            html = await text("/status")
            assert "<h1>1 fault · 2 sandboxes</h1>" in html
            assert html.index(">fails<") < html.index(">runs<")
            home.run("rm", "--force", "runs", "fails")
            async with asyncio.timeout(30):
                while "There are no sandboxes" not in await text("/status"):
                    await asyncio.sleep(0.1)
            assert samples(await text("/metrics"))["actions_total", "remove", Outcome.OK] == 2
            assert SECRET not in html + str(told)
    finally:
        home.run("rm", "--force", "runs", "fails")


@pytest.mark.parametrize("path", PATHS)
async def test_only_a_token_of_this_scope_opens_it(home: Home, status_server: Server, status_token: str, path) -> None:
    url = status_server.url + path
    other = home.token(f"other{PATHS.index(path)}", "api", "page", "mcp")
    gone = home.token(f"gone{PATHS.index(path)}", "status")
    home.run("tokens", "rm", f"gone{PATHS.index(path)}")
    basic = "Basic " + base64.b64encode(f"anyone:{status_token}".encode()).decode()
    async with aiohttp.ClientSession() as session:
        refused = [{}, *({"Authorization": f"Bearer {one}"} for one in (other, gone, "", "x" * 3000))]
        refused += [{"Authorization": text} for text in ("Basic !", "Basic", f"Digest {status_token}", status_token)]
        for head in refused:
            async with session.get(url, headers=head) as answer:
                assert (answer.status, "Basic" in answer.headers["WWW-Authenticate"]) == (401, True), head
        async with session.get(url, headers={"Authorization": basic}) as answer:
            assert answer.status == 200
            assert answer.headers["Cache-Control"] == "no-store"
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        good = {"Authorization": f"Bearer {status_token}"}
        for head, code in (
            ({"Host": "evil.example"}, 421),
            ({"Origin": "http://evil.example"}, 403),
            ({"Sec-Fetch-Site": "cross-site"}, 403),
        ):
            async with session.get(url, headers=good | head) as answer:
                assert answer.status == code, head
        async with session.post(url, headers=good) as answer:
            assert answer.status == 405


def test_watch_serves_it_without_rules(home: Home, status_token: str) -> None:
    argv = [sys.executable, "-m", "sandbox_console", "watch", "--status-port", "0"]
    process = subprocess.Popen(argv, env=home.environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    try:
        url = process.stderr.readline().split()[1].replace("/status", "/metrics")
        done = subprocess.run(
            ["curl", "-sf", "-H", f"Authorization: Bearer {status_token}", url],
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("audit_up",) in samples(done.stdout)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143
    assert home.run("watch", "--status-port", "70000").returncode == 2


def _status(**more: object) -> FleetStatus:
    sandbox = Sandbox(REF, HOSTILE, Status.EXITED, image=HOSTILE, detail=HOSTILE, exit=Exit(1, oom=True))
    health = BackendHealth("docker", HOSTILE, HealthState.UNREACHABLE, HOSTILE)
    return FleetStatus(
        0.0, (health,), (sandbox,), {REF: 7}, {("docker", HOSTILE): 7}, {("create", "ok"): 1}, (), 5, **more
    )


def test_hostile_text_is_text() -> None:
    html = page(_status(audit_problem=HOSTILE, unshipped=2), 1)
    assert "<script" not in html
    assert "\x1b" not in html
    assert "&lt;script&gt;" in html
    found = samples(exposition(_status(unshipped=2), 3).decode())
    assert found["denied_connections_total", "docker", HOSTILE] == 7
    assert found["backend_up", "docker", HOSTILE] == 0
    assert found["browser_sessions",] == 3
    assert found["audit_unshipped_rows",] == 2
    assert as_json(_status(), None)["sandboxes"][0]["name"] == HOSTILE
    assert samples(exposition(_status(audit_problem="locked"), None).decode())["audit_up",] == 0


async def test_a_backend_that_does_not_answer_has_no_sandboxes_that_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SANDBOX_CONSOLE_HOME", str(tmp_path))
    ref = SandboxRef("fake", "local", "one")
    backend = FakeBackend(sandboxes=[Sandbox(ref, "one", Status.RUNNING)])
    async with open_console(Config(), backends=[backend]) as console, StatusWatch(console) as watch:
        async with asyncio.timeout(20):
            while not (now := await watch.read()).sandboxes:
                await asyncio.sleep(0.01)
        assert [one.status for one in now.sandboxes] == [Status.RUNNING]
        console.hub.publish(HealthChanged(BackendHealth("fake", "local", HealthState.UNREACHABLE, "frozen")))
        console.hub.publish(Denied(ref, 3, "x.example", 1.0))
        console.hub.publish(Denied(ref, 5, "x.example", 1.0))
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            while not (now := await watch.read()).refusals:
                await asyncio.sleep(0.01)
        assert [(one.status, one.detail) for one in now.sandboxes] == [(Status.UNKNOWN, "last seen running: frozen")]
        assert (now.refusals, now.denied) == ({("fake", "local"): 5}, {ref: 5})


def test_it_ends_by_a_signal_and_the_page_counts_its_sessions(home: Home, status_token: str) -> None:
    with serving(home, "--status", what="status") as running:
        url = running.url.replace("/status", "/metrics")
        done = subprocess.run(
            ["curl", "-sf", "-u", f"x:{status_token}", url], capture_output=True, text=True, check=True
        )
        assert samples(done.stdout)["browser_sessions",] == 0
        assert running.stop() == 0
        eventually(lambda: subprocess.run(["curl", "-s", url], check=False).returncode == 7, 10)
